//! The page `docs/conformance.md`.

use super::{Outcome, Spec};
use crate::machine::{date, hardware};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The page, below the workspace's folder.
pub(crate) const PATH: &str = "docs/conformance.md";
const CONFORMANCE: &str = "[Conformance]";

/// Why specs are not run, in the order of the columns.
const NEEDS: [(&str, &str, &str); 6] = [
    (
        "container",
        "need containers",
        "what a container does: output, exit codes, files, traffic, servers of webhooks and aggregated APIs",
    ),
    (
        "cluster",
        "need other parts",
        "drivers of storage, load balancers, kubelets, or a cluster's add-ons",
    ),
    ("time", "take too long", "more than ten minutes, or a restart of the server by the spec"),
    ("flaky", "flaky", "a stable outcome: Kubernetes marks them as flaky, and leaves them out"),
    ("feature", "of alpha and beta APIs", "group versions that are off by default"),
    (
        "itself",
        "skip themselves",
        "their own conditions are not met, such as a number of nodes or a feature gate",
    ),
];

/// The counts of one row.
#[derive(Debug, Default, Clone)]
struct Count {
    n_passed: usize,
    n_failed: usize,
    not_run: [usize; NEEDS.len()],
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.n_passed += 1,
            Outcome::Failed(_) => self.n_failed += 1,
            Outcome::NotRun(need) => {
                let at = NEEDS.iter().position(|(name, ..)| name == need);
                self.not_run[at.unwrap_or(NEEDS.len() - 1)] += 1;
            }
        }
    }
    fn row(&self, name: &str) -> String {
        let n_run = self.n_passed + self.n_failed;
        let n_all = n_run + self.not_run.iter().sum::<usize>();
        let not_run: String = self.not_run.iter().map(|n| format!(" {n} |")).collect();
        format!("| {name} | {n_all} | {n_run} | {} | {} |{not_run}\n", self.n_passed, self.n_failed)
    }
}

/// The page of a run.
pub(super) fn page(specs: &[Spec], e2e: &str, server: &str) -> Result<String> {
    let mut page = format!(
        "# Conformance\n\n\
         Kubernetes' own end-to-end specs, unchanged, run against `setpoint up`. Written by\n\
         `cargo xtask conformance --e2e PATH`, which takes the `e2e.test` of a Kubernetes release.\n\
         Each behavior with the test that holds it: [behavior](behavior.md).\n\n\
         {}, {}. Specs of {e2e}; the server says it is {server}; objects in memory.\n\n\
         The command is `setpoint up --nodes 4 --authorization-mode Node,RBAC --enable-bootstrap-token-auth \
         --enable-admission-plugins NodeRestriction`: nodes whose Pods start, become ready and end as their specs say, without containers. \
         Specs of dual stack have a server with `--service-cluster-ip-range` of both families. The default StorageClass has the simulated \
         provisioner. Specs that need more are not run:\n\n| | needs |\n|---|---|\n",
        date()?,
        hardware()?,
    );
    for (_, heading, what) in NEEDS {
        writeln!(page, "| {heading} | {what} |")?;
    }
    let (conformance, others): (Vec<&Spec>, Vec<&Spec>) =
        specs.iter().partition(|spec| spec.name.contains(CONFORMANCE));
    page += "\n## Conformance specs\n\nThe specs that every Kubernetes cluster must pass, by special interest group.\n\n";
    table(&mut page, &conformance);
    page += "\n## Other specs\n\n\
             Those that are not part of conformance, of all groups but those of Windows and of clouds.\n\n";
    table(&mut page, &others);
    page += "\n## Failures\n\n";
    let mut failures: Vec<(&str, &str)> = specs
        .iter()
        .filter_map(|spec| match &spec.outcome {
            Outcome::Failed(message) => Some((&*spec.name, &**message)),
            _ => None,
        })
        .collect();
    failures.sort_unstable();
    if failures.is_empty() {
        page += "None.\n";
    } else {
        page += "| spec | cause |\n|---|---|\n";
    }
    for (name, message) in failures {
        let cause =
            cause(name).map_or_else(|| format!("`{}`", message.replace('|', "\\|")), str::to_owned);
        writeln!(page, "| {} | {cause} |", name.replace('|', "\\|"))?;
    }
    Ok(page)
}

fn table(page: &mut String, specs: &[&Spec]) {
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    let mut all = Count::default();
    for spec in specs {
        let sig = spec.name.split(['[', ']']).nth(1).unwrap_or_default();
        counts.entry(sig).or_default().add(&spec.outcome);
        all.add(&spec.outcome);
    }
    *page += "| group | specs | run | passed | failed |";
    NEEDS.iter().for_each(|(_, heading, _)| *page += &format!(" {heading} |"));
    *page += &format!("\n|---|---|---|---|---|{}\n", "---|".repeat(NEEDS.len()));
    for (sig, count) in &counts {
        *page += &count.row(sig);
    }
    if counts.len() > 1 {
        *page += &all.row("all");
    }
}

/// The known cause of a failure: `part of the spec's name | cause`.
fn cause(name: &str) -> Option<&'static str> {
    let lines = include_str!("causes.txt").lines();
    let mut lines =
        lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" | "));
    lines.find(|(part, _)| name.contains(part)).map(|(_, cause)| cause)
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, Spec};
    use super::page;

    #[test]
    fn rows_count_outcomes_by_group() {
        let spec = |name: &str, outcome| Spec { name: name.to_owned(), outcome };
        let specs = [
            spec("[sig-a] x [Conformance]", Outcome::Passed),
            spec("[sig-a] y [Conformance]", Outcome::Failed("it broke".to_owned())),
            spec("[sig-b] z [Conformance]", Outcome::NotRun("container".to_owned())),
            spec("[sig-api-machinery] w", Outcome::NotRun("itself".to_owned())),
        ];
        let page = page(&specs, "v1.36.0", "v1.36.0").unwrap();
        for row in [
            "| sig-a | 2 | 2 | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 0 |",
            "| sig-b | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 0 | 0 |",
            "| all | 3 | 2 | 1 | 1 | 1 | 0 | 0 | 0 | 0 | 0 |",
            "| sig-api-machinery | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 |",
            "| [sig-a] y [Conformance] | `it broke` |",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
    }
}
