#include "cli/report_commands.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <sstream>

#include "core/error.h"
#include "core/output_file.h"
#include "core/text.h"
#include "report/page/report_command.h"
#include "report/watch/watch_command.h"
#include "serve/serve_command.h"

namespace automodel::cli {

namespace {

void add_report(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("report", "write one HTML page about runs");
  const auto folders = std::make_shared<std::vector<std::string>>();
  command->add_option("folders", *folders, "folders of runs (their checkpoint.checkpoint_dir)")
      ->required()
      ->type_name("DIR...");
  const auto output = std::make_shared<std::string>();
  command->add_option("-o,--output", *output, "file to write (default: standard output)");
  command->footer("automodel report checkpoints/a checkpoints/b -o report.html");
  command->callback([folders, output, &status] {
    if (output->empty() && ::isatty(STDOUT_FILENO) == 1) {
      throw UserError("the page would fill this terminal: name a file (-o report.html)");
    }
    if (output->empty()) {
      status = report::write_report(*folders, std::cout);
      return;
    }
    std::ostringstream page;
    status = report::write_report(*folders, page);
    write_output_file(*output, page.str());
  });
}

void add_watch(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("watch", "show runs in this terminal while they train");
  const auto options = std::make_shared<report::WatchOptions>();
  command->add_option("folders", options->folders, "folders of runs")
      ->required()
      ->type_name("DIR...");
  command->add_flag("--once", options->is_once, "print the picture as it is now, and end");
  command->footer("Where the output is no terminal, it is a line a step until the runs end.");
  command->callback([options, &status] { status = report::watch(*options, std::cout); });
}

void add_serve(CLI::App& app, int& status) {
  auto* command = app.add_subcommand(
      "serve", "serve live pages of the runs below a folder, and their numbers for Prometheus");
  const auto options = std::make_shared<serve::ServeOptions>();
  command->add_option("folder", options->folder, "folder with the folders of runs in it")
      ->required()
      ->type_name("DIR");
  command->add_option(
      "--port", options->port,
      cat("port to listen on (default ", serve::kDefaultPort, "); 0 takes one that is free"));
  command->add_option("--host", options->host,
                      "address to listen on (default 127.0.0.1, which only this machine reaches); "
                      "another needs a token");
  command->add_option(
      "--token", options->token,
      cat("what requests must show; better in the environment as ", serve::kTokenVariable));
  command->footer(
      "/ lists the runs, /runs/RUN is a run's page; /metrics is for Prometheus, /api/runs is "
      "JSON,\n"
      "/health says ok. A token comes as `Authorization: Bearer TOKEN` or `?token=TOKEN`. Ctrl+C "
      "ends it.");
  command->callback([options, &status] { status = serve::serve_runs(*options, std::cout); });
}

}  // namespace

void add_report_commands(CLI::App& app, int& status) {
  add_report(app, status);
  add_watch(app, status);
  add_serve(app, status);
}

}  // namespace automodel::cli
