//! The page, and the reasons of known differences.

use super::play::Scenario;
use super::{Difference, Outcome};
use crate::machine::{date, hardware};
use anyhow::Result;
use std::fmt::Write as _;

/// The page.
pub(super) const PATH: &str = "docs/original-controllers.md";

/// Why a difference stays, as `known.txt` has it.
pub(super) fn reason(difference: &Difference) -> Option<&'static str> {
    let lines = include_str!("known.txt").lines().filter(|line| !line.starts_with('#'));
    let mut rows = lines.filter_map(|line| {
        let mut parts = line.splitn(3, " | ");
        Some((parts.next()?, parts.next()?, parts.next()?))
    });
    let whole = format!("{}: {} / {}", difference.what, difference.ours, difference.original);
    let fits = |scenario: &str, part: &str| {
        (scenario == "*" || difference.scenario == scenario)
            && part.split(" & ").all(|part| whole.contains(part))
    };
    rows.find(|(scenario, part, _)| fits(scenario, part)).map(|(.., why)| why)
}

pub(super) fn page(
    scenarios: &[Scenario],
    differences: &[Difference],
    original: &Outcome,
    version: &str,
    controllers: &str,
) -> Result<String> {
    let left_out = match controllers {
        "*" => String::new(),
        some => format!(", with `--controllers={some}`: without what its distribution has added"),
    };
    let mut page = format!(
        "# The original controllers\n\n\
         The same scenarios over the same server, nodes and scheduler: once with the controllers of \
         `setpoint up --nodes 4`, once with Kubernetes' own kube-controller-manager in their place. \
         Written by\n`cargo xtask compare --kcm PATH`.\n\n\
         {}, {}. kube-controller-manager {version}{left_out}.\n\n\
         Compared are all objects of the scenario's namespace when nothing changes any more \
         (without identities, times, addresses, nodes, names made by chance, managed fields, and \
         generations), their conditions, the events with their counts, the sizes of ReplicaSets and \
         the pods with fixed names in the order of their changes, and what kubectl is answered.\n\n\
         | scenario | | snapshots | differences |\n|---|---|---|---|\n",
        date()?,
        hardware()?,
    );
    for scenario in scenarios {
        let n = differences.iter().filter(|one| one.scenario == scenario.name).count();
        let snapshots = scenario.n_snapshots();
        writeln!(page, "| {} | {} | {snapshots} | {n} |", scenario.name, scenario.about)?;
    }
    page.push_str("\n## Differences\n\n");
    match differences {
        [] => page.push_str("None.\n"),
        _ => page.push_str("| scenario | what | here | there | why |\n|---|---|---|---|---|\n"),
    }
    for one in differences {
        let cell = |text: &str| {
            let short: String = text.chars().take(160).collect();
            short.replace('|', "\\|").replace('\n', " ")
        };
        let why = reason(one).unwrap_or("unknown");
        writeln!(
            page,
            "| {} | {} | {} | {} | {why} |",
            one.scenario,
            cell(&one.what),
            cell(&one.ours),
            cell(&one.original)
        )?;
    }
    page.push_str(
        "\n## Credentials\n\nkube-controller-manager runs with \
         `--use-service-account-credentials` and RBAC on: it acts as \
         `system:kube-controller-manager`, and each controller as its own service account in \
         `kube-system`.\n\n| user | requests |\n|---|---|\n",
    );
    for (user, n) in &original.requests {
        let name = user.strip_prefix("system:serviceaccount:kube-system:").unwrap_or(user);
        writeln!(page, "| {name} | {n} |")?;
    }
    match original.forbidden.is_empty() {
        true => page.push_str("\nRBAC refused none of them.\n"),
        false => page.push_str("\nRBAC refused:\n\n"),
    }
    for one in &original.forbidden {
        writeln!(page, "- {one}")?;
    }
    Ok(page)
}
