// Names that torch's headers of CUDA mention, for a machine without cuBLAS's own header.
//
// ProcessGroupNCCL.hpp includes the headers of cuBLAS, cuSPARSE and cuSOLVER, of which it uses
// nothing but handles and status codes. These libraries are downloads of 0.8 GB, so where they are
// missing this folder stands in. It is searched last.
#pragma once

typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
