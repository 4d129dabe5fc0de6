// Columns of the index that earlier versions did not write.
#pragma once

#include "trace/file/record.h"

#include <vector>

namespace ttrace {

class Hdf5Input;

// Each sets what its columns say of the records of the table `index`, which are in its order, and
// changes nothing where the index does not have them. Throw FormatError for what does not fit a
// record.

// Record::samples.
void read_samples(const Hdf5Input& file, const char* index, std::vector<Record>& records);
// Record::keep and Record::sketch.
void read_keep(const Hdf5Input& file, const char* index, std::vector<Record>& records);

}  // namespace ttrace
