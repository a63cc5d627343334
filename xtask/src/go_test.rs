//! What programs of `go test` print with `-test.v`.

/// The outcomes of tests, without those of their parts: `PASS`, `FAIL` or `SKIP`, and the name.
pub(crate) fn outcomes(output: &str) -> impl Iterator<Item = (&str, &str)> {
    output.lines().filter_map(outcome)
}

/// The outcomes of the parts of tests.
pub(crate) fn parts(output: &str) -> impl Iterator<Item = (&str, &str)> {
    let indented = |line: &&str| line.starts_with(' ');
    output.lines().filter(indented).filter_map(|line| outcome(line.trim_start()))
}

fn outcome(line: &str) -> Option<(&str, &str)> {
    let (outcome, test) = line.strip_prefix("--- ")?.split_once(": ")?;
    Some((outcome, test.split(' ').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::{outcomes, parts};

    #[test]
    fn tests_are_apart_from_their_parts() {
        let output = "=== RUN TestA\n    --- PASS: TestA/x (0.00s)\n--- PASS: TestA (0.00s)\n\
                      --- FAIL: TestB (0.10s)\n--- SKIP: TestC (0.00s)\nFAIL\n";
        let expected = [("PASS", "TestA"), ("FAIL", "TestB"), ("SKIP", "TestC")];
        assert!(outcomes(output).eq(expected));
        assert!(parts(output).eq([("PASS", "TestA/x")]));
    }
}
