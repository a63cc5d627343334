//! The page `docs/components.md`.

use super::asked::{Answers, Asked};
use super::{Outcome, Report, Step};
use crate::machine::{date, hardware};
use anyhow::Result;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The page, below the workspace's folder.
pub(super) const PATH: &str = "docs/components.md";
/// The longest reason in a cell, in characters.
const REASON_CHARS: usize = 200;

/// The page, from the steps and what came of them on both sides.
pub(super) fn page(steps: &[Step], ours: &Report, original: &Report) -> Result<String> {
    let mut page = format!(
        "# Kubernetes' own components\n\n\
         The kubelet, the scheduler and kube-proxy of Kubernetes 1.36 with `setpoint up`, and with kube-apiserver and\n\
         kube-controller-manager. Two kubelets, those of kubemark, join with a bootstrap token: it is the kubelet's code over a container\n\
         runtime that runs nothing. Written by `cargo xtask components --kubernetes SOURCE --go PATH --etcd PATH`.\n\n\
         {}, {}.\n\n\
         | step | seconds here | there |\n|---|---|---|\n",
        date()?,
        hardware()?,
    );
    for ((step, ours), original) in steps.iter().zip(&ours.outcomes).zip(&original.outcomes) {
        writeln!(page, "| {} | {} | {} |", step.name, outcome(ours), outcome(original))?;
    }
    page.push_str(
        "\n## Requests\n\nWhat the components asked, from the audit logs: how many requests had which answer. How often something is asked\n\
         depends on how long the steps take. A watch counts when it begins. Over an etcd before 3.4.31 kube-apiserver streams no lists, so its\n\
         clients fall back to lists.\n\n\
         | component | request | here | there |\n|---|---|---|---|\n",
    );
    let kinds: BTreeSet<_> = ours.asked.keys().chain(original.asked.keys()).collect();
    let answers = |asked: &Asked, kind| asked.get(kind).map_or_else(|| "—".to_owned(), answers);
    for kind in kinds {
        let (ours, original) = (answers(&ours.asked, kind), answers(&original.asked, kind));
        let request = format!("{} `{}`", kind.verb, kind.resource);
        writeln!(page, "| {} | {request} | {ours} | {original} |", kind.component)?;
    }
    Ok(page)
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Ok(seconds) => format!("{seconds:.1}"),
        Err(reason) => {
            let reason: String = reason.chars().take(REASON_CHARS).collect();
            format!("failed: `{}`", reason.replace('|', "\\|").replace(['`', '\n'], "'"))
        }
    }
}

/// `200: 12, 404: 2`.
fn answers(answers: &Answers) -> String {
    let parts: Vec<String> = answers.iter().map(|(code, n)| format!("{code}: {n}")).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::asked::{Asked, Request};
    use super::super::{Report, Step};
    use super::page;

    #[test]
    fn requests_of_one_side_only_have_a_row() {
        let steps = [Step { name: "a step", commands: Vec::new() }];
        let request = |verb: &str| Request {
            component: "kubelet",
            verb: verb.to_owned(),
            resource: "pods/status".to_owned(),
        };
        let asked = |verb: &str, code| Asked::from([(request(verb), [(code, 2)].into())]);
        let ours = Report { outcomes: vec![Ok(1.25)], asked: asked("get", 200) };
        let failed = vec![Err("no | way".to_owned())];
        let original = Report { outcomes: failed, asked: asked("patch", 409) };
        let page = page(&steps, &ours, &original).unwrap();
        assert!(page.contains("| a step | 1.2 | failed: `no \\| way` |\n"), "{page}");
        assert!(page.contains("| kubelet | get `pods/status` | 200: 2 | — |\n"), "{page}");
        assert!(page.contains("| kubelet | patch `pods/status` | — | 409: 2 |\n"), "{page}");
    }
}
