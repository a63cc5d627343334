//! Code that runs in virtual time does the same things in the same order in every run.

use super::{root, sources};

/// The crates whose code runs in virtual time.
const SIMULATED: &[&str] = &[
    "apiserver",
    "control-plane",
    "controllers",
    "informer",
    "nodes",
    "registry",
    "runtime",
    "scheduler",
    "store",
    "testenv",
    "workqueue",
];
/// Parts of them that move bytes between two sockets: neither side may wait for the other.
const FAIR: &[&str] = &[
    "crates/apiserver/src/proxy.rs",
    "crates/apiserver/src/streams",
    "crates/apiserver/src/websocket.rs",
    "crates/control-plane/src/proxy.rs",
];

/// Without `biased`, `tokio::select!` polls its branches in random order.
#[test]
fn choices_are_made_in_the_order_of_the_branches() {
    let mut wrong = Vec::new();
    for path in sources() {
        let is_simulated =
            SIMULATED.iter().any(|name| path.starts_with(format!("crates/{name}/src")));
        let is_fair = FAIR.iter().any(|part| path.to_string_lossy().starts_with(part));
        if !is_simulated || is_fair || path.ends_with("tests.rs") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        let is_code = |line: &str| !line.trim_start().starts_with("//");
        let mut lines = (1..).zip(text.lines()).filter(|(_, line)| is_code(line)).peekable();
        while let Some((n, line)) = lines.next() {
            let is_biased = lines.peek().is_some_and(|(_, next)| next.trim() == "biased;");
            if line.contains("select! {") && !is_biased {
                wrong.push(format!("{}:{n}: the branches have no order", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
