//! The page `docs/behavior.md` names a test for each row. Its test checks that they exist.

use crate::cargo::root;
use std::collections::BTreeSet;
use std::fs;

/// The page, relative to the root.
const PAGE: &str = "docs/behavior.md";

/// The tests that a row names, `path::name`, with paths below `crates`.
fn named(row: &str) -> impl Iterator<Item = (&str, &str)> {
    row.split('`').skip(1).step_by(2).filter_map(|code| code.rsplit_once("::"))
}

/// The names of a file's tests: functions with an attribute, and those that a macro makes a test
/// of.
fn tests(source: &str) -> BTreeSet<&str> {
    let mut tests = BTreeSet::new();
    let (mut is_test, mut in_cases) = (false, false);
    for line in source.lines().map(str::trim) {
        let name = line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next());
        match name {
            _ if line.contains("cases! {") => in_cases = true,
            _ if in_cases && line == "}" => in_cases = false,
            _ if in_cases => tests.extend(line.split_whitespace()),
            _ if line.starts_with("#[") => is_test |= line.contains("test"),
            Some(name) if std::mem::take(&mut is_test) => _ = tests.insert(name),
            _ => {}
        }
    }
    tests
}

#[test]
fn each_row_of_the_page_names_tests_that_exist() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let mut wrong = Vec::new();
    let mut n_rows = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.ends_with("held by |")) {
        let mut cells = row.trim_matches('|').rsplitn(2, " | ");
        let (held, behavior) = (cells.next().unwrap_or_default(), cells.next());
        n_rows += 1;
        if behavior.is_none_or(|behavior| behavior.trim().is_empty()) {
            wrong.push(format!("no two cells: {row}"));
        }
        if held.trim_start().starts_with("left out: ") {
            continue;
        }
        if named(held).count() == 0 {
            wrong.push(format!("names no test, and no reason: {row}"));
        }
        for (path, name) in named(held) {
            match fs::read_to_string(root().join("crates").join(path)) {
                Ok(source) if tests(&source).contains(name) => {}
                Ok(_) => wrong.push(format!("{path} has no test {name}")),
                Err(error) => wrong.push(format!("{path}: {error}")),
            }
        }
    }
    assert!(n_rows > 100, "{n_rows} rows");
    assert!(wrong.is_empty(), "{PAGE}:\n{}", wrong.join("\n"));
}

#[test]
fn tests_of_a_file_are_found() {
    let source = "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test(start_paused = true)]\nasync fn c() {}\n\
        crate::cases! {\n    d\n    e\n}\nproptest! {\n    #[test]\n    fn f(x in y) {}\n}\n#[derive(Debug)]\nstruct S;\nfn g() {}";
    assert_eq!(tests(source), BTreeSet::from(["a", "c", "d", "e", "f"]));
    let row = "`x/y.rs::z`, `a/b.rs::c`";
    assert_eq!(named(row).collect::<Vec<_>>(), [("x/y.rs", "z"), ("a/b.rs", "c")]);
}
