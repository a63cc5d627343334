//! Pages state measured figures, and name what is served.

use super::root;
use crate::pages::{PAGES, Row, filled, rows, sources};
use std::collections::{BTreeMap, BTreeSet};

fn results() -> String {
    std::fs::read_to_string(root().join("benches/RESULTS.md")).expect("RESULTS.md is there")
}

/// `cargo xtask pages` makes them equal again.
#[test]
fn pages_state_the_figures_of_results() {
    let rows = sources().expect("the sources are there");
    for page in PAGES {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let fresh = filled(&text, &rows).unwrap_or_else(|error| panic!("{page}: {error:#}"));
        assert!(text == fresh, "the figures of {page} are old: run `cargo xtask pages`");
    }
}

#[test]
fn readme_states_figures() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.matches("<!--=-->").count() >= 10, "README.md names rows of RESULTS.md");
}

#[test]
fn each_measure_is_in_results_once() {
    let rows = rows(&results(), "Results");
    assert!(rows.len() > 100, "rows are read");
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.columns[0] == "measure") {
        places.entry(&row.cells[0]).or_default().push(&row.section);
    }
    places.retain(|_, sections| sections.len() > 1);
    assert!(places.is_empty(), "measured twice: {places:#?}");
}

#[test]
fn each_goal_in_results_has_a_verdict() {
    let is_open = |row: &&Row| match (row.cell("goal"), row.cell("verdict")) {
        (None, None) => false,
        (Some(goal), Some(verdict)) => (goal == "–") != (verdict == "–"),
        _ => true,
    };
    let rows = rows(&results(), "Results");
    let open: Vec<_> = rows.iter().filter(is_open).map(|row| &row.cells).collect();
    assert!(open.is_empty(), "{open:#?}");
}

#[test]
fn each_part_of_results_says_how_it_was_measured() {
    let results = results();
    for part in results.split("\n## ") {
        let heading = part.lines().next().unwrap_or_default();
        let how = ["Command: `", "taken apart from the runs above"];
        assert!(how.iter().any(|how| part.contains(how)), "{heading} does not name its command");
    }
}

/// The page of what is there names every group version that is served.
#[test]
fn compatibility_names_every_group_version() {
    let facts = root().join("crates/facts/src/generated/resources.rs");
    let facts = std::fs::read_to_string(facts).expect("the facts are there");
    let of = |line: &str, name: &str| {
        let value = line.split(&format!("{name}: \"")).nth(1)?.split('"').next()?;
        Some(value.to_owned())
    };
    let lines = facts.lines().filter(|line| line.starts_with("Resource {"));
    let versions: BTreeSet<String> = lines
        .filter_map(|line| match of(line, "group")? {
            group if group.is_empty() => of(line, "version"),
            group => Some(format!("{group}/{}", of(line, "version")?)),
        })
        .collect();
    assert!(versions.contains("apps/v1"), "the facts are read: {versions:?}");
    let page = std::fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
    let missing: Vec<_> =
        versions.iter().filter(|version| !page.contains(&format!("`{version}`"))).collect();
    assert!(missing.is_empty(), "docs/compatibility.md does not name {missing:?}");
}

/// The docs' pages contain the compiled files unchanged.
#[test]
fn pages_contain_the_compiled_files() {
    let docs = root().join("docs");
    for (page, files) in [
        ("side-by-side", &["website_controller.go", "kube_rs.rs", "setpoint.rs"][..]),
        ("testing", &["copier.rs"]),
    ] {
        let text = std::fs::read_to_string(docs.join(page).with_extension("md")).unwrap();
        for file in files {
            let shown = std::fs::read_to_string(docs.join(page).join(file)).unwrap();
            assert!(text.contains(&shown), "docs/{page}.md does not show {file} as it is");
        }
    }
}

/// The getting-started page contains the files that are compiled and run, and names their
/// dependencies.
#[test]
fn getting_started_contains_the_compiled_files() {
    let page = std::fs::read_to_string(root().join("docs/getting-started.md")).unwrap();
    let example = root().join("examples/website");
    for file in ["src/lib.rs", "src/main.rs", "tests/website.rs", "website.json"] {
        let shown = std::fs::read_to_string(example.join(file)).unwrap();
        assert!(page.contains(&shown), "docs/getting-started.md does not show {file} as it is");
    }
    let manifest = std::fs::read_to_string(example.join("Cargo.toml")).unwrap();
    let dependencies = manifest.split_once("\n[dependencies]\n").unwrap().1;
    let packages = dependencies.lines().filter_map(|line| line.split([' ', '.']).next());
    for package in packages.filter(|package| !package.is_empty() && !package.starts_with('[')) {
        let line = format!("\n{package} = ");
        assert!(page.contains(&line), "docs/getting-started.md does not depend on {package}");
    }
}
