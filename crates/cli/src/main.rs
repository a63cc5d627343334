//! The `setpoint` program.

mod admission;
mod audit;
mod booleans;
mod connections;
mod data;
mod demo;
mod durations;
mod egress;
mod emulation;
mod encryption;
mod envtest;
mod flagz;
mod front_proxy;
mod issuers;
mod metric_options;
mod nodes;
mod open_api;
mod peers;
mod requests;
mod service_accounts;
mod serving;
mod store_options;
mod token_signer;
mod trace;
mod up;
mod users;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use setpoint::object::error::chain;
use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Returns unused memory to the system, and is faster than the C library's allocator. Without huge
/// pages, so that an idle program is small.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A Kubernetes control plane in one process.
#[derive(Debug, Parser)]
#[command(name = "setpoint", version = setpoint::apiserver::GIT_VERSION)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a control plane and serve it until interrupted.
    Up(Box<up::Options>),
    /// Show the whole loop in one process: an API server, a controller, and the life of a Network.
    Demo(demo::Options),
    /// Maintain a data folder.
    #[command(subcommand)]
    Store(data::Command),
    /// Take the place of the binaries that controller-runtime's envtest starts.
    #[command(subcommand)]
    Envtest(envtest::Command),
    /// Print the Kubernetes version that is served.
    Version,
}

fn main() -> ExitCode {
    if let Some(ended) = envtest::run_as_named() {
        return ended;
    }
    let succeeded = |()| ExitCode::SUCCESS;
    let ended = match Program::read().command {
        Command::Up(options) => up::up(*options).map(succeeded),
        Command::Demo(options) => demo::demo(options).map(succeeded),
        Command::Store(command) => data::run(command).map(succeeded),
        Command::Envtest(command) => envtest::run(command),
        Command::Version => {
            print(format_args!("{}\n", setpoint::apiserver::GIT_VERSION)).map(succeeded)
        }
    };
    ended.unwrap_or_else(|error| {
        // Unlike `eprintln!`, does not panic: the exit code stays if nobody can read the message.
        let _ = writeln!(io::stderr(), "setpoint: {}", chain(error.as_ref()));
        ExitCode::from(data::exit_code(&error))
    })
}

impl Program {
    /// Reads the command line. What describes and holds its flags, some 250 KB, is freed before a
    /// server starts.
    fn read() -> Self {
        let command = Self::command();
        let matches = command.clone().try_get_matches().unwrap_or_else(|error| refuse(&error));
        let mut program = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        if let Command::Up(options) = &mut program.command
            && let Some((name, matches)) = matches.subcommand()
            && let Some(command) = command.find_subcommand(name)
        {
            options.flags = flagz::shown(command, matches);
        }
        program
    }
}

/// Ends the program with what is wrong with its command line, and with a tip if it has a flag of
/// kube-apiserver that there is not.
fn refuse(error: &clap::Error) -> ! {
    let is_up = std::env::args_os().nth(1).is_some_and(|command| command == "up");
    if let (true, Some(tip)) = (is_up, envtest::tip(error)) {
        let _ = writeln!(io::stderr(), "setpoint: {tip}");
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Writes to standard output. Fails where `print!` panics: if the disk is full, or the reader of a
/// pipe is gone.
fn print(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text).and_then(|()| out.flush()).context("write to standard output")
}
