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
    "crates/control-plane/src/aggregation/proxy.rs",
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
        for (n, (line, next)) in (1..).zip(text.lines().zip(text.lines().skip(1))) {
            let is_code = !line.trim_start().starts_with("//");
            if is_code && line.contains("select! {") && next.trim() != "biased;" {
                wrong.push(format!("{}:{n}: the first line is not `biased;`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
