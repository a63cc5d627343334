//! No process outlives its pod or its node.
//!
//! | what ends | what ends its processes |
//! |---|---|
//! | a container | signals to its process group, then to each process with its mark |
//! | the node, in order | the end of each container |
//! | the node, killed | a guard: a shell whose input ends with the node |
//!
//! A mark is a variable of the environment, which a process passes on to its children. One that
//! clears its environment and leaves its process group escapes.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::process::Stdio;
use tokio::process::{Child, Command};

/// The variable that marks the processes of a node's run.
pub(crate) const NODE_MARK: &str = "SETPOINT_NODE_RUN";
/// The variable that marks the processes of a container's run.
pub(crate) const CONTAINER_MARK: &str = "SETPOINT_CONTAINER_RUN";

/// How often the guard and the end of a container look for processes: one may have started another
/// while it was being ended.
const SWEEPS: usize = 3;

/// Waits for the end of its input, then kills the processes with a mark.
const SCRIPT: &str = r#"
trap '' TERM INT HUP QUIT
cat >/dev/null
for sweep in 1 2 3; do
  for file in $(grep -alz "^$1\$" /proc/[0-9]*/environ 2>/dev/null); do
    process=${file#/proc/}
    kill -KILL "${process%/environ}" 2>/dev/null
  done
done
"#;

/// Starts the guard of a node's run.
///
/// # Errors
///
/// There is no shell.
pub(crate) fn start(run: &str) -> std::io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", SCRIPT, "node-guard", &format!("{NODE_MARK}={run}")])
        .env_remove(NODE_MARK)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A signal from the terminal is for the node.
        .process_group(0)
        .spawn()
}

/// Sends a signal to a process group. One that has ended is no error.
pub(crate) fn signal_group(leader: u32, signal: Signal) {
    if let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        _ = kill_process_group(leader, signal);
    }
}

/// Kills all processes with a mark, on a thread that may block.
pub(crate) async fn kill_marked(name: &'static str, value: String) {
    let mark = format!("{name}={value}").into_bytes();
    _ = tokio::task::spawn_blocking(move || {
        for _ in 0..SWEEPS {
            if !kill_once(&mark) {
                return;
            }
        }
    })
    .await;
}

/// Returns whether there was any.
fn kill_once(mark: &[u8]) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let mut has_killed = false;
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(environment) = std::fs::read(process.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark)
            && let Some(id) = Pid::from_raw(id)
        {
            has_killed |= kill_process(id, Signal::KILL).is_ok();
        }
    }
    has_killed
}

/// Kills a process group when it is dropped.
#[derive(Debug)]
pub(crate) struct GroupGuard(pub(crate) Option<u32>);

impl GroupGuard {
    /// Kills what is left of the group. Called when its leader has just ended: later its id may be
    /// that of another group.
    pub(crate) fn finish(&mut self) {
        if let Some(leader) = self.0.take() {
            signal_group(leader, Signal::KILL);
        }
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        self.finish();
    }
}
