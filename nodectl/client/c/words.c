/* Reads the few options that are known here, in their plain forms. tests/unit/client/quick/test_request.py compares the
 * result with that of nodectl/client/run_options.py for the same words. */
#include "quick.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 6 };

long long number_of(const char *text, size_t most_digits)
{
    size_t length = strspn(text, "0123456789");
    return text[0] == '0' || length == 0 || length > most_digits || text[length] != '\0' ? 0 : atoll(text);
}

/* Returns the value of the option at `*words`, if its name is `name`: "--ntasks=4", or "--ntasks", "4". NULL if it is
 * another option, or has no value. Leaves `*words` at the option's last word. */
static const char *value_of_long(char ***words, const char *name)
{
    const char *word = **words;
    size_t length = strlen(name);
    if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0)
        return NULL;
    if (word[2 + length] == '=')
        return word + 2 + length + 1;
    if (word[2 + length] != '\0' || (*words)[1] == NULL)
        return NULL;
    (*words)++;
    return **words;
}

/* As value_of_long(), and also reads the short forms "-n4", and "-n", "4". */
static const char *value_of(char ***words, char letter, const char *name)
{
    const char *word = **words;
    if (word[1] != letter)
        return value_of_long(words, name);
    if (word[2] != '\0')
        return word + 2;
    if ((*words)[1] == NULL)
        return NULL;
    (*words)++;
    return **words;
}

static bool read_option(char ***words, struct wanted *wanted)
{
    const char *value;
    if (strcmp(**words, "-O") == 0 || strcmp(**words, "--overcommit") == 0)
        return wanted->overcommit = true;
    if (strcmp(**words, "--overlap") == 0 || strcmp(**words, "--exact") == 0) {
        const char *earlier = wanted->sharing;
        wanted->sharing = **words + 2;
        return earlier == NULL || strcmp(earlier, wanted->sharing) == 0;
    }
    if ((value = value_of(words, 'N', "nodes")) != NULL)
        return (wanted->nodes = number_of(value, MOST_DIGITS)) != 0;
    if ((value = value_of(words, 'n', "ntasks")) != NULL)
        return (wanted->ntasks = number_of(value, MOST_DIGITS)) != 0;
    if ((value = value_of(words, 'c', "cpus-per-task")) != NULL)
        return (wanted->cpus_per_task = number_of(value, MOST_DIGITS)) != 0;
    if ((value = value_of(words, 'J', "job-name")) == NULL)
        return false;
    wanted->name = value;
    return true;
}

/* Reads --socket PATH, which stands before the command. */
static bool read_global_options(char ***words, struct wanted *wanted)
{
    for (; **words != NULL && (**words)[0] == '-'; (*words)++) {
        const char *value = value_of_long(words, "socket");
        if (value == NULL || value[0] == '\0')
            return false;
        wanted->socket = value;
    }
    return true;
}

bool read_words(char **words, struct wanted *wanted)
{
    if (!read_global_options(&words, wanted) || *words == NULL || strcmp(*words, "run") != 0)
        return false;
    words++;
    for (char **word = words; *word != NULL; word++)
        if (strcmp(*word, ":") == 0) /* separates components of a heterogeneous job */
            return false;
    for (; *words != NULL && (*words)[0] == '-' && (*words)[1] != '\0'; words++) {
        if (strcmp(*words, "--") == 0) {
            words++;
            break;
        }
        if (!read_option(&words, wanted))
            return false;
    }
    wanted->argv = words;
    return *words != NULL;
}
