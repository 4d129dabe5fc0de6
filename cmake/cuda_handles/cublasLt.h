// See cublas_v2.h.
#pragma once

typedef struct cublasLtContext* cublasLtHandle_t;
