//! The binaries that controller-runtime's envtest and its relatives start, as one program under
//! three names: `setpoint envtest` installs it, and the name that it is started by decides what it
//! is.
//!
//! `docs/envtest.md` says what differs from the originals.

pub(crate) mod control;
mod etcd;
mod faults;
pub(crate) mod flags;
mod install;
mod kube_apiserver;
mod kubectl;
pub(crate) mod parent;
pub(crate) mod planes;
mod requests;
mod virtual_time;
mod which_etcd;

use clap::Subcommand;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The names in a folder of assets.
pub(crate) const NAMES: [&str; 3] = ["kube-apiserver", "etcd", "kubectl"];

/// `setpoint envtest`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Install the binaries in a folder, for KUBEBUILDER_ASSETS.
    Install(install::Install),
    /// Install the binaries and print where, as `setup-envtest use`.
    Use(install::Use),
    /// Serve on a free port of 127.0.0.1, with kube-apiserver's flags, and print one line of JSON
    /// once requests are served: `url`, `kubeconfig`, `certificateAuthority` and `token`. Ends with
    /// the process that started it.
    Serve {
        /// Flags of kube-apiserver.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
        flags: Vec<OsString>,
    },
}

/// Runs a subcommand.
///
/// # Errors
///
/// If binaries cannot be installed. `serve` has its own exit code and messages, as kube-apiserver.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Install(options) => options.run().map(|()| ExitCode::SUCCESS),
        Command::Use(options) => options.run().map(|()| ExitCode::SUCCESS),
        Command::Serve { flags } => Ok(kube_apiserver::serve(flags)),
    }
}

/// Why `setpoint up` lacks a flag of kube-apiserver; `None`: another error.
pub(crate) fn tip(error: &clap::Error) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    kube_apiserver::tip(flag)
}

/// Runs the program that has the name by which this one was started; `None`: it is `setpoint`.
pub(crate) fn run_as_named() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let path = arguments.next()?;
    let arguments: Vec<OsString> = arguments.collect();
    match Path::new(&path).file_name()?.to_str()? {
        "kube-apiserver" => Some(kube_apiserver::run(arguments)),
        "etcd" => Some(etcd::run(arguments)),
        "kubectl" => Some(kubectl::run(arguments)),
        _ => None,
    }
}
