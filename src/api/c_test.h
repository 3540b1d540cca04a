/* For tests in C: expectations that are counted, and told of with kvilt_last_error. */
#ifndef KVILT_SRC_API_C_TEST_H_
#define KVILT_SRC_API_C_TEST_H_

#include <stdio.h>
#include <string.h>

#include "kvilt/kvilt_c.h"

static int failures = 0;

#define EXPECT(condition)                                                             \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
              kvilt_last_error());                                                    \
      ++failures;                                                                     \
    }                                                                                 \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == KVILT_OK)
#define EXPECT_ERROR(call, status, text)                \
  do {                                                  \
    EXPECT((call) == (status));                         \
    EXPECT(strstr(kvilt_last_error(), (text)) != NULL); \
  } while (0)

#endif /* KVILT_SRC_API_C_TEST_H_ */
