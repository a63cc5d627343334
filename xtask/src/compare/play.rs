//! Scenarios: their files, and playing one on a server.

use super::normal::{Names, Snapshot};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is watched in all namespaces, for names and orders.
pub(super) const WATCHES: &[(&str, &str)] = &[
    ("pods.watch", "/api/v1/pods"),
    ("replicasets.watch", "/apis/apps/v1/replicasets"),
    ("jobs.watch", "/apis/batch/v1/jobs"),
    ("controllerrevisions.watch", "/apis/apps/v1/controllerrevisions"),
    ("endpointslices.watch", "/apis/discovery.k8s.io/v1/endpointslices"),
];
/// The kinds of a snapshot.
const KINDS: &str = "pods,replicationcontrollers,replicasets,deployments,statefulsets,daemonsets,\
    jobs,cronjobs,controllerrevisions,services,endpoints,endpointslices,poddisruptionbudgets,\
    horizontalpodautoscalers,persistentvolumeclaims,resourcequotas,serviceaccounts,configmaps,\
    events";
/// How often a snapshot has to be the same before it counts.
const SAME: usize = 3;
/// How often it is taken at most.
const TRIES: usize = 40;

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("scenarios/", $name, ".txt")))),*]
    };
}

const FILES: &[(&str, &str)] = files!(
    "cron-job" "deployment" "failed-roll" "recreate" "replica-set" "stateful-set"
    "stateful-set-volumes" "daemon-set" "job" "job-failure" "service" "disruption" "autoscaler"
    "namespace" "garbage" "quota"
);

/// What is done, one after the other.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: String,
    /// A sentence.
    pub(super) about: String,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    /// Creates the object.
    Apply(String),
    /// Runs kubectl.
    Run(Vec<String>),
    /// Waits with kubectl.
    Wait(Vec<String>),
    /// Asks for the eviction of a pod.
    Evict(String),
    /// Waits until nothing changes, and takes a snapshot.
    Snapshot(String),
}

/// What a scenario has left.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    pub(super) snapshots: Vec<(String, Snapshot)>,
    /// The answers to evictions.
    pub(super) answers: Vec<String>,
    /// Waits that failed, with what kubectl has written.
    pub(super) failed: Vec<String>,
    /// Sizes of ReplicaSets, and pods with names of their own, in the order of the changes.
    pub(super) orders: BTreeMap<String, Vec<String>>,
}

impl Scenario {
    pub(super) fn n_snapshots(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Snapshot(_))).count()
    }
}

/// All scenarios.
pub(super) fn scenarios() -> Vec<Scenario> {
    FILES.iter().map(|(name, text)| parse(name, text)).collect()
}

/// A line per step; the object of `apply` is in indented lines below it.
fn parse(name: &str, text: &str) -> Scenario {
    let (mut about, mut steps) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(indented) = line.strip_prefix("  ") {
            if let Some(Step::Apply(object)) = steps.last_mut() {
                object.push_str(indented);
                object.push('\n');
            }
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = || rest.split_whitespace().map(str::to_owned).collect();
        match word {
            "#" => rest.clone_into(&mut about),
            "run" => steps.push(Step::Run(words())),
            "wait" => steps.push(Step::Wait(words())),
            "evict" => steps.push(Step::Evict(rest.to_owned())),
            "snapshot" => steps.push(Step::Snapshot(rest.to_owned())),
            _ => steps.push(Step::Apply(String::new())),
        }
    }
    Scenario { name: name.to_owned(), about, steps }
}

/// kubectl as the administrator.
#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) kubectl: &'a Path,
    pub(super) kubeconfig: &'a Path,
    pub(super) folder: &'a Path,
}

impl Client<'_> {
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(self.kubectl);
        // kubectl keeps what it has discovered below its home.
        command.env("HOME", self.folder).env("KUBECONFIG", self.kubeconfig).stdin(Stdio::null());
        command
    }

    /// Runs kubectl; the error is what it has written. A busy machine may lose connections.
    fn run(&self, namespace: &str, args: &[String], input: &str) -> Result<String> {
        const LOST: [&str; 3] =
            ["Unable to connect to the server", "TLS handshake timeout", "connection lost"];
        for _ in 0..5 {
            match self.run_once(namespace, args, input) {
                Err(error) if LOST.iter().any(|lost| error.to_string().contains(lost)) => {}
                result => return result,
            }
        }
        self.run_once(namespace, args, input)
    }

    fn run_once(&self, namespace: &str, args: &[String], input: &str) -> Result<String> {
        let mut command = self.command();
        command.args(["--namespace", namespace]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start kubectl")?;
        child.stdin.take().context("its input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(super) fn play(&self, scenario: &Scenario) -> Result<Played> {
        let namespace = &*scenario.name;
        let args = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        self.run("default", &args(&["create", "namespace", namespace]), "")?;
        // Pods need it.
        let account = ["get", "serviceaccount", "default"];
        for _ in 0..TRIES {
            if self.run(namespace, &args(&account), "").is_ok() {
                break;
            }
            pause(Duration::from_millis(500));
        }
        let mut played = Played::default();
        for step in &scenario.steps {
            match step {
                Step::Apply(object) => {
                    let create = args(&["create", "--filename", "-"]);
                    self.run(namespace, &create, object).with_context(|| object.clone())?;
                }
                Step::Run(words) => {
                    let words: Vec<_> =
                        words.iter().map(|word| word.replace("$NAMESPACE", namespace)).collect();
                    self.run(namespace, &words, "").with_context(|| words.join(" "))?;
                }
                Step::Wait(words) => {
                    let mut all = args(&["wait", "--timeout=240s"]);
                    all.extend(words.iter().map(|word| word.replace("$NAMESPACE", namespace)));
                    if let Err(error) = self.run(namespace, &all, "") {
                        played.failed.push(format!("{}: {error}", words.join(" ")));
                    }
                }
                Step::Evict(pod) => {
                    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
                    let eviction = json!({
                        "apiVersion": "policy/v1",
                        "kind": "Eviction",
                        "metadata": {"name": pod, "namespace": namespace},
                    });
                    let create = args(&["create", "--raw", &path, "--filename", "-"]);
                    let answer = match self.run(namespace, &create, &eviction.to_string()) {
                        Ok(_) => "evicted".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    played.answers.push(format!("eviction of {pod}: {answer}"));
                }
                Step::Snapshot(name) => {
                    let snapshot = self.settled(namespace)?;
                    played.snapshots.push((name.clone(), snapshot));
                }
            }
        }
        played.orders = self.names(namespace)?.orders();
        Ok(played)
    }

    /// The state when it has been the same for a while.
    fn settled(&self, namespace: &str) -> Result<Snapshot> {
        let (mut last, mut same) = (None, 0);
        for _ in 0..TRIES {
            let get = ["get", KINDS, "--output=json", "--ignore-not-found"];
            let get: Vec<_> = get.iter().map(|arg| (*arg).to_owned()).collect();
            let list = self.run(namespace, &get, "")?;
            let get = ["get", "namespace", namespace, "--output=json", "--ignore-not-found"];
            let get: Vec<_> = get.iter().map(|arg| (*arg).to_owned()).collect();
            let own = self.run(namespace, &get, "")?;
            let names = self.names(namespace)?;
            let mut snapshot = Snapshot::default();
            if !list.is_empty() {
                let list: Value = serde_json::from_str(&list).context("a list")?;
                for object in list["items"].as_array().into_iter().flatten() {
                    snapshot.add(object.clone(), &names);
                }
            }
            if !own.is_empty() {
                snapshot.add(serde_json::from_str(&own).context("a namespace")?, &names);
            }
            same = if last.as_ref() == Some(&snapshot) { same + 1 } else { 1 };
            if same == SAME {
                return Ok(snapshot);
            }
            last = Some(snapshot);
            pause(Duration::from_secs(1));
        }
        last.context("no snapshot")
    }

    /// What has been seen of a namespace.
    fn names(&self, namespace: &str) -> Result<Names> {
        let mut names = Names::default();
        for (name, _) in WATCHES {
            let text = std::fs::read(self.folder.join(name))?;
            // The last event may be incomplete.
            let events = serde_json::Deserializer::from_slice(&text).into_iter::<Value>();
            for event in events.map_while(std::result::Result::ok) {
                if event["object"]["metadata"]["namespace"] == namespace {
                    names.see(event["type"].as_str().unwrap_or_default(), &event["object"]);
                }
            }
        }
        Ok(names)
    }
}

/// Waits in a thread of the chore, which has no runtime.
#[expect(clippy::disallowed_methods, reason = "there is no runtime to block")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

#[cfg(test)]
mod tests {
    use super::{Step, scenarios};

    #[test]
    fn each_scenario_says_what_it_is_and_ends_with_a_snapshot() {
        for scenario in scenarios() {
            assert!(scenario.about.ends_with('.'), "{}", scenario.name);
            assert!(matches!(scenario.steps.last(), Some(Step::Snapshot(_))), "{}", scenario.name);
        }
    }
}
