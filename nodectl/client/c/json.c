/* Writes strings into JSON messages, and finds values in them. */
#include "quick.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Returns the length in bytes of the character that begins here; 0 if Python rejects it as UTF-8: RFC 3629. */
static size_t length_of(const unsigned char *at, size_t left)
{
    size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || length > left)
        return 0;
    uint32_t point = at[0] & (0xff >> (length + 1));
    for (size_t index = 1; index < length; index++) {
        if ((at[index] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (at[index] & 0x3f);
    }
    if ((length == 3 && point < 0x800) || (length == 4 && point < 0x10000) || point > 0x10ffff)
        return 0; /* an overlong form, or no character */
    return point >= 0xd800 && point < 0xe000 ? 0 : length;
}

static void add_escaped(struct buffer *buffer, unsigned char byte)
{
    char text[8];
    if (byte == '"' || byte == '\\')
        snprintf(text, sizeof text, "\\%c", byte);
    else
        snprintf(text, sizeof text, "\\u%04x", byte);
    add_text(buffer, text);
}

void add_string(struct buffer *buffer, const char *bytes, size_t size, bool *beyond_ascii)
{
    const unsigned char *at = (const unsigned char *)bytes;
    size_t begin = 0, here = 0;
    add_text(buffer, "\"");
    while (here < size) {
        size_t length = 1;
        if (at[here] >= 0x80) {
            *beyond_ascii = true;
            length = length_of(at + here, size - here);
            if (length == 0) {
                buffer->failed = true;
                return;
            }
        } else if (at[here] < 0x20 || at[here] == '"' || at[here] == '\\') {
            add(buffer, bytes + begin, here - begin);
            add_escaped(buffer, at[here]);
            begin = here + 1;
        }
        here += length;
    }
    add(buffer, bytes + begin, here - begin);
    add_text(buffer, "\"");
}

/* Returns the place behind the string that begins here; NULL if the string does not end. */
static const char *behind_string(const char *at, const char *end)
{
    for (at++; at < end; at++) {
        if (*at == '"')
            return at + 1;
        if (*at == '\\')
            at++;
    }
    return NULL;
}

/* Returns the place behind the value that begins here; NULL if the value does not end. */
static const char *behind_value(const char *at, const char *end)
{
    size_t depth = 0;
    while (at != NULL && at < end) {
        if (*at == '"') {
            at = behind_string(at, end);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (depth > 0 && (*at == ',' || *at == ':')) {
            at++;
            continue;
        } else {
            at += strcspn(at, ",:]}[{\""); /* a message ends with a NUL */
        }
        if (depth == 0)
            return at;
    }
    return NULL;
}

struct value member(struct value object, const char *name)
{
    static const struct value nothing = {NULL, NULL};
    const char *at = object.at, *end = object.end;
    size_t length = strlen(name);
    if (at == NULL || at >= end || *at != '{')
        return nothing;
    while (++at < end && *at == '"') {
        const char *key = at + 1;
        at = behind_string(at, end);
        if (at == NULL || at >= end || *at != ':')
            return nothing;
        bool found = (size_t)(at - 1 - key) == length && memcmp(key, name, length) == 0;
        const char *value = at + 1;
        at = value < end ? behind_value(value, end) : NULL;
        if (at == NULL || at >= end || (*at != ',' && *at != '}'))
            return nothing;
        if (found)
            return (struct value){value, at};
        if (*at == '}')
            return nothing;
    }
    return nothing;
}

bool is(struct value value, const char *text)
{
    size_t length = strlen(text);
    return value.at != NULL && (size_t)(value.end - value.at) == length && memcmp(value.at, text, length) == 0;
}
