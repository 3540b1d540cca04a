// What a kernel asks of the machine: threads, barriers, shuffles, copies, matrix multiply-adds.
//
// Kernels are written against these names alone. simt_ptx.cuh says each in PTX for a GPU;
// src/emulator/simt_host.h says it in C++ for the emulator, so that the same kernel text runs in
// tests on a machine without a GPU. Names and meaning are listed in simt_ptx.cuh.
#pragma once

#ifdef __CUDACC_RTC__
#include "simt_ptx.cuh"
#else
#include "simt_host.h"
#endif
