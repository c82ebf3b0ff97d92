#include "report/page/report_command.h"

#include <ostream>

#include "core/error.h"
#include "report/page/page.h"
#include "report/records/run_files.h"

namespace automodel::report {

int write_report(const std::vector<std::string>& folders, std::ostream& out) {
  out << report_page(read_runs(folders)) << std::flush;
  if (!out) throw InputError("cannot write the report: is the disk full, or its reader gone?");
  return 0;
}

}  // namespace automodel::report
