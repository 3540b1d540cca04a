// Everything but the C ABI (kvilt_c.h).
#pragma once

#include "kvilt/attention.h"
#include "kvilt/device.h"
#include "kvilt/dtype.h"
#include "kvilt/kv_cache.h"
#include "kvilt/page_pool.h"
#include "kvilt/plan.h"
#include "kvilt/request.h"
#include "kvilt/status.h"
#include "kvilt/tensor.h"
#include "kvilt/version.h"
