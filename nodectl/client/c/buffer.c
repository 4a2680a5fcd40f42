/* A buffer of bytes that grows. */
#include "quick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 8192 };

char *room_for(struct buffer *buffer, size_t size)
{
    if (buffer->failed || size > buffer->limit - buffer->size) {
        buffer->failed = true;
        return NULL;
    }
    if (buffer->size + size > buffer->room) {
        size_t room = buffer->room ? 2 * buffer->room : FIRST;
        if (room < buffer->size + size)
            room = buffer->size + size;
        char *data = realloc(buffer->data, room);
        if (data == NULL) {
            buffer->failed = true;
            return NULL;
        }
        buffer->data = data;
        buffer->room = room;
    }
    return buffer->data + buffer->size;
}

void add(struct buffer *buffer, const char *bytes, size_t size)
{
    char *at = room_for(buffer, size);
    if (at == NULL || size == 0)
        return;
    memcpy(at, bytes, size);
    buffer->size += size;
}

void add_text(struct buffer *buffer, const char *text)
{
    add(buffer, text, strlen(text));
}

void add_number(struct buffer *buffer, long long number)
{
    char digits[24]; /* enough for 64 bits */
    int size = snprintf(digits, sizeof digits, "%lld", number);
    add(buffer, digits, (size_t)size);
}
