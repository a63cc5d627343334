//! Current kubectl: definitions with the constructs of well-known projects, and objects of them.
//!
//! Each folder in `projects` has YAML files and a transcript, `kubectl.txt`: commands, and what
//! kubectl prints with Kubernetes' own kube-apiserver. The files were written for this test. They
//! cover the constructs of cert-manager, Istio, Crossplane, Argo, the Prometheus operator, Gateway
//! API, Knative and Cluster API.
//!
//! A new transcript needs only the commands. With a kubeconfig of a kube-apiserver without custom
//! resources in `SETPOINT_TEST_ORIGINAL`, the commands run there, and their output is written into
//! the transcripts. Run one test at a time then.

use crate::server::{Program, Server};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What begins a cause, behind its field.
const KINDS: [&str; 8] = [
    "Duplicate value",
    "Forbidden",
    "Internal error",
    "Invalid value",
    "Required value",
    "Too long",
    "Too many",
    "Unsupported value",
];
/// Stands for the line break of a cause, which belongs to its line.
const BREAK: &str = "\u{1}";

/// Runs the commands of a transcript and compares their output.
#[track_caller]
fn check(project: &str) {
    let folder = Path::new("tests/clients/projects").join(project);
    let transcript = folder.join("kubectl.txt");
    let expected = std::fs::read_to_string(&transcript).unwrap();
    let commands = || expected.lines().filter_map(|line| line.strip_prefix("$ "));
    let server = Server::start();
    for file in std::fs::read_dir(&folder).unwrap() {
        let file = file.unwrap();
        let content = std::fs::read_to_string(file.path()).unwrap();
        server.file(&file.file_name().into_string().unwrap(), &content);
    }
    let Some(original) = std::env::var_os("SETPOINT_TEST_ORIGINAL").map(PathBuf::from) else {
        let actual = run(&server.kubectl(), commands());
        if actual != expected {
            let diff = similar::TextDiff::from_lines(&expected, &actual);
            let diff = diff.unified_diff().context_radius(2).header("original", "ours").to_string();
            panic!("kubectl does not print what it should:\n{diff}");
        }
        return;
    };
    let kubectl = server.kubectl().with_config(original);
    let written = run(&kubectl, commands());
    kubectl.any_output("delete -f definitions.yaml --timeout=30s");
    std::fs::write(transcript, written).unwrap();
}

/// The transcript of commands.
fn run<'a>(kubectl: &Program<'_>, commands: impl Iterator<Item = &'a str>) -> String {
    let mut transcript = String::new();
    for command in commands {
        let output = normalized(&kubectl.any_output(command));
        writeln!(transcript, "$ {command}").unwrap();
        if !output.is_empty() {
            writeln!(transcript, "{output}").unwrap();
        }
    }
    transcript
}

/// An output without what differs from run to run: times, ids, widths of columns, and the order of
/// causes, which is that of Go's maps.
fn normalized(output: &str) -> String {
    let output = without_numbers(output, "selfType").replace("\n | ", &format!("{BREAK} | "));
    let lines: Vec<String> = output.lines().filter(|line| !is_volatile(line)).map(line).collect();
    let mut sorted: Vec<String> = Vec::new();
    for lines in lines.chunk_by(|a, b| list_of(a).is_some() && list_of(a) == list_of(b)) {
        let mut lines = lines.to_vec();
        if list_of(&lines[0]).is_some() {
            lines.sort();
        }
        sorted.append(&mut lines);
    }
    sorted.join("\n").replace(BREAK, "\n").trim_end_matches('\n').to_owned()
}

/// The list that a line is an element of: causes, or errors of an applied object.
fn list_of(line: &str) -> Option<&'static str> {
    ["* ", "  ."].into_iter().find(|prefix| line.starts_with(prefix))
}

/// Removes the digits behind a word.
fn without_numbers(text: &str, word: &str) -> String {
    let mut parts = text.split(word);
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        text + word + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// Whether a line of YAML has a time or an id of the server.
fn is_volatile(line: &str) -> bool {
    let line = line.trim();
    let id = line.strip_prefix("uid: ").is_some_and(|id| id.len() == 36);
    id || line.starts_with("creationTimestamp: \"") || line.starts_with("resourceVersion: \"")
}

fn line(line: &str) -> String {
    let line = line.trim_end();
    let last = line.rsplit(' ').next().unwrap();
    if !line.contains("   ") && !is_age(last) {
        return with_sorted_causes(line);
    }
    let indent = line.len() - line.trim_start().len();
    let columns = line.trim_start().split("  ").map(str::trim).filter(|column| !column.is_empty());
    let columns: Vec<&str> =
        columns.map(|column| if is_age(column) { "AGE" } else { column }).collect();
    " ".repeat(indent) + &columns.join("  ")
}

/// Whether a word is an age, such as `5s`, `3m10s` or `6y325d`.
fn is_age(word: &str) -> bool {
    let mut rest = word;
    let mut units = 0;
    while let Some(at) = rest.find(|c: char| !c.is_ascii_digit()) {
        if at == 0 || !rest[at..].starts_with(['s', 'm', 'h', 'd', 'y']) {
            return false;
        }
        rest = &rest[at + 1..];
        units += 1;
    }
    rest.is_empty() && (1..=2).contains(&units)
}

fn with_sorted_causes(line: &str) -> String {
    let Some((head, list)) = line.split_once(" is invalid: [") else { return line.to_owned() };
    let Some(list) = list.strip_suffix(']') else { return line.to_owned() };
    let mut causes: Vec<String> = Vec::new();
    for part in list.split(", ") {
        match causes.last_mut() {
            Some(cause) if !begins_cause(part) => *cause += &format!(", {part}"),
            _ => causes.push(part.to_owned()),
        }
    }
    causes.sort();
    format!("{head} is invalid: [{}]", causes.join(", "))
}

/// Whether a text begins with a field and a kind of cause.
fn begins_cause(text: &str) -> bool {
    text.split_once(": ").is_some_and(|(field, rest)| {
        !field.contains([' ', ',']) && KINDS.iter().any(|kind| rest.starts_with(kind))
    })
}

#[test]
fn certificates_and_issuers() {
    check("certificates");
}

#[test]
fn clusters_and_their_classes() {
    check("clusters");
}

#[test]
fn compositions_of_resources() {
    check("composition");
}

#[test]
fn gateways_and_routes() {
    check("gateways");
}

#[test]
fn meshes_of_services() {
    check("mesh");
}

#[test]
fn monitors_and_alerts() {
    check("monitoring");
}

#[test]
fn rules_of_every_library() {
    check("rules");
}

#[test]
fn services_with_templates_of_pods() {
    check("serving");
}

#[test]
fn workflows_and_applications() {
    check("workflows");
}

#[test]
fn outputs_are_normalized() {
    let output = "NAME   AGE\na      3m10s\nuid: 01234567-89ab-cdef-0123-456789abcdef\nThe A \"a\" is invalid: \n* c: x selfType123\n | d\n* b: y\n";
    assert_eq!(
        normalized(output),
        "NAME  AGE\na  AGE\nThe A \"a\" is invalid:\n* b: y\n* c: x selfType\n | d"
    );
    assert_eq!(
        normalized(
            "A is invalid: [b: Invalid value: 1: is one of a, b, <nil>: Forbidden: c, d, a: Required value]"
        ),
        "A is invalid: [<nil>: Forbidden: c, d, a: Required value, b: Invalid value: 1: is one of a, b]"
    );
}
