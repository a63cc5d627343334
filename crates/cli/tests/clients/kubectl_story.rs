//! The page `docs/story.md` with a real kubectl: each command of its listings is run in order, and
//! prints what the page says. A watch counts the pods meanwhile.

use crate::server::{Lines, PATIENCE, Server, part};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const PAGE: &str = "../../docs/story.md";

/// Commands that change nothing are repeated until they print what the page says.
const READS: [&str; 4] =
    ["kubectl get ", "kubectl describe ", "kubectl rollout status ", "kubectl rollout history "];

/// A command of the page, and what it prints.
struct Step {
    /// The most pods that are not being deleted, as the page says before it.
    pods_max: usize,
    command: String,
    output: String,
}

/// The commands of the `console` blocks.
fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut is_console, mut pods_max) = (false, 0);
    for line in std::fs::read_to_string(PAGE).unwrap().lines() {
        if let Some(limit) = line.strip_prefix("<!-- pods at most: ") {
            pods_max = limit.trim_end_matches(" -->").parse().unwrap();
        } else if line.starts_with("```") {
            is_console = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_console) {
            steps.push(Step { pods_max, command: command.to_owned(), output: String::new() });
        } else if is_console {
            let step = steps.last_mut().expect("a command comes before its output");
            step.output.push_str(line.trim_end());
            step.output.push('\n');
        }
    }
    steps
}

/// Whether a text is a pattern in which `…` stands for anything.
fn fits(text: &str, pattern: &str) -> bool {
    let text: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

/// Runs a line of the page in a shell; returns whether it succeeded, and what it printed.
fn shell(server: &Server, line: &str) -> (bool, String) {
    let folder = server.folder.path();
    let programs = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", line])
        .env_clear()
        .env("PATH", format!("{}:{programs}", folder.join("bin").display()))
        .env("HOME", folder)
        .env("KUBECONFIG", server.kubeconfig())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn link(binary: &Path, folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    std::os::unix::fs::symlink(binary, folder.join("kubectl")).unwrap();
}

/// The pods of the watch, and whether each is being deleted.
#[derive(Default)]
struct Pods(BTreeMap<String, bool>);

impl Pods {
    /// Reads the lines that have come.
    fn read(&mut self, lines: &Lines, pods_max: usize) {
        while let Some(line) = lines.pending() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["DELETED", name, ..] => _ = self.0.remove(name),
                [_, name] => _ = self.0.insert(name.to_owned(), false),
                [_, name, _deleted_at] => _ = self.0.insert(name.to_owned(), true),
                _ => panic!("{line:?}"),
            }
            let n_active = self.0.values().filter(|is_deleted| !**is_deleted).count();
            assert!(n_active <= pods_max, "{n_active} pods, more than {pods_max}: {line}");
        }
    }
}

#[test]
fn page_says_what_kubectl_prints() {
    let server = Server::start_with(&["--nodes=4".as_ref(), "--controllers=*".as_ref()]);
    link(&part("SETPOINT_TEST_KUBECTL"), &server.folder.path().join("bin"));
    let kubectl = server.kubectl();
    kubectl.eventually("get nodes", |table| table.matches(" Ready ").count() == 4);
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    let watch = "get pods -l app=web --watch --output-watch-events -o \
        jsonpath='{.type} {.object.metadata.name} {.object.metadata.deletionTimestamp}{\"\\n\"}'";
    let lines = Lines::of(kubectl.command(watch));
    let mut pods = Pods::default();
    let steps = steps();
    assert!(steps.len() > 15, "the page has listings");
    for Step { pods_max, command, output } in &steps {
        let is_read = READS.iter().any(|read| command.starts_with(read));
        let started = Instant::now();
        loop {
            let (succeeded, said) = shell(&server, command);
            pods.read(&lines, *pods_max);
            if succeeded && fits(&said, output) {
                break;
            }
            assert!(
                is_read && started.elapsed() < PATIENCE,
                "$ {command}\n{said}\nand not\n{output}\nserver log:\n{}",
                server.log()
            );
        }
    }
}

#[test]
fn pattern_has_gaps() {
    assert!(fits("a 1 b 2 \n", "a … b …\n"));
    assert!(fits("x\ny\ndone\n", "…done\n"));
    assert!(!fits("a 1 c 2\n", "a … b …\n"));
    assert!(!fits("a\nmore\n", "a\n"));
}
