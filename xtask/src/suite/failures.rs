//! What failed in a long run, said again at its end.

use std::fmt;

/// Bytes that are kept of what failed tests printed, and of their names.
const MAX_BYTES: usize = 64 << 10;

/// Collects the failures in the output of `cargo test`.
///
/// With `--no-fail-fast` the programs after the one that failed can print more than the end of a
/// log that is kept.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// What failed tests printed.
    output: String,
    /// Their names, one in a line.
    names: String,
    /// If the lines are of failed tests: those between `failures:` and the result of a program.
    is_output: bool,
}

impl Failures {
    /// Takes one line of the output, without its end.
    pub(crate) fn take(&mut self, line: &str) {
        let failed = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        if let Some(name) = failed {
            push(&mut self.names, name);
        } else if line == "failures:" {
            self.is_output = true;
        } else if line.starts_with("test result: ") {
            self.is_output = false;
        } else if self.is_output {
            push(&mut self.output, line);
        }
    }
}

fn push(text: &mut String, line: &str) {
    if text.len() + line.len() < MAX_BYTES {
        text.push_str(line);
        text.push('\n');
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nfailed:\n{}", self.output, self.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(output: &str) -> String {
        let mut failures = Failures::default();
        for line in output.lines() {
            failures.take(line);
        }
        failures.to_string()
    }

    #[test]
    fn failures_of_each_program_are_said_again() {
        let said = after(
            "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n\
             ---- b stdout ----\n\nthread 'b' panicked at src/b.rs:1:1:\nno\n\n\n\
             failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n\n\
             running 1 test\ntest c ... ok\n\ntest result: ok. 1 passed; 0 failed\n",
        );
        assert!(said.contains("---- b stdout ----\n\nthread 'b' panicked at src/b.rs:1:1:\nno\n"));
        assert!(said.ends_with("failed:\nb\n"), "{said}");
        assert!(!said.contains("test c"), "{said}");
    }

    #[test]
    fn names_are_kept_of_tests_that_printed_much() {
        let much = "much\n".repeat(MAX_BYTES);
        let said = after(&format!(
            "test a ... FAILED\nfailures:\n{much}test result: FAILED.\ntest b ... FAILED\n"
        ));
        assert!(said.len() < 2 * MAX_BYTES && said.ends_with("failed:\na\nb\n"));
    }
}
