#include "core/descriptor.h"

#include <unistd.h>

namespace automodel {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace automodel
