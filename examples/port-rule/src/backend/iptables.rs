//! iptables over nftables, for nodes without `nft`.
//!
//! # Theory
//!
//! Our part is two chains of the table `filter`, each called by one rule of `INPUT` and `OUTPUT`,
//! for IPv4 and again for IPv6. `iptables-restore --noflush` empties and fills the chains in one
//! transaction per family; between the two, one family has the new rules and the other the old
//! ones. `iptables-save` lists the chains in the form in which [`script`] writes them.
//!
//! Lines match as those of [`Nftables`](super::Nftables). `Allow` returns to the calling chain, so
//! that it does not override rules of others there.

use super::{Backend, BackendError, Program, Unsupported};
use crate::api::{Direction, Protocol, Verdict};
use crate::ruleset::{Line, Peers, Rule, Ruleset, Span};
use futures::future::{BoxFuture, FutureExt};
use std::fmt::Display;

/// Our chains, the chains they are called from, and how each names interfaces and peers.
const CHAINS: [Chain; 2] = [
    Chain {
        direction: Direction::In,
        name: "PORT-RULE-IN",
        caller: "INPUT",
        loopback: "-i lo",
        peer: "--src-range",
    },
    Chain {
        direction: Direction::Out,
        name: "PORT-RULE-OUT",
        caller: "OUTPUT",
        loopback: "-o lo",
        peer: "--dst-range",
    },
];

/// Maximum number of ports of one match; a range counts as two.
const PORTS_MAX: usize = 15;

struct Chain {
    direction: Direction,
    name: &'static str,
    caller: &'static str,
    loopback: &'static str,
    peer: &'static str,
}

impl Chain {
    fn call(&self) -> String {
        format!("-A {} -j {}", self.caller, self.name)
    }
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// iptables-nft.
#[derive(Debug)]
pub struct Iptables {
    families: [(Family, Program, Program); 2],
}

impl Iptables {
    /// The back end's name.
    pub const NAME: &str = "iptables";

    /// Uses the programs that `program` returns for their names: `iptables-nft-save`,
    /// `iptables-nft-restore`, and the same with `ip6tables`. They need `CAP_NET_ADMIN`.
    pub fn new(program: impl Fn(&str) -> Program) -> Self {
        let of = |family, save, restore| (family, program(save), program(restore));
        let families = [
            of(Family::V4, "iptables-nft-save", "iptables-nft-restore"),
            of(Family::V6, "ip6tables-nft-save", "ip6tables-nft-restore"),
        ];
        Self { families }
    }
}

async fn saved(save: &Program) -> Result<String, BackendError> {
    let what = "list iptables";
    let output = save.run(&["-t", "filter"], b"").await;
    let output = output.map_err(|source| BackendError::Program { what, source })?;
    String::from_utf8(output).map_err(|_| BackendError::Output { what, source: None })
}

impl Backend for Iptables {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check(&self, rule: &Rule) -> Result<(), Unsupported> {
        match rule.zone {
            Some(_) => Err(Unsupported { backend: Self::NAME, what: "zones" }),
            None => Ok(()),
        }
    }

    fn holds<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<bool, BackendError>> {
        async move {
            for (family, save, _) in &self.families {
                if !matches(&saved(save).await?, ruleset, *family) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        .boxed()
    }

    fn replace<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<(), BackendError>> {
        async move {
            for (family, save, restore) in &self.families {
                let script = script(ruleset, *family, &saved(save).await?);
                let ran = restore.run(&["--noflush"], script.as_bytes()).await;
                let what = "replace the chains of iptables";
                ran.map_err(|source| BackendError::Program { what, source })?;
            }
            Ok(())
        }
        .boxed()
    }
}

/// Whether a saved table has exactly the chains of a ruleset, each called once.
pub(crate) fn matches(saved: &str, ruleset: &Ruleset, family: Family) -> bool {
    // Whether a comment is in quotes depends on its text and the version.
    let saved = saved.replace('"', "");
    let lines: Vec<&str> = saved.lines().map(str::trim_end).collect();
    CHAINS.iter().all(|chain| {
        let declaration = format!(":{} ", chain.name);
        let is_there = lines.iter().any(|line| line.starts_with(&declaration));
        let n_calls = lines.iter().filter(|line| **line == chain.call()).count();
        if ruleset.is_empty() {
            return !is_there && n_calls == 0;
        }
        let own = format!("-A {} ", chain.name);
        let found = lines.iter().filter(|line| line.starts_with(&own)).copied();
        is_there
            && n_calls == 1
            && found.eq(rules(ruleset, family, chain).iter().map(|rule| &**rule))
    })
}

/// The transaction that replaces our chains in a saved table by a ruleset.
pub(crate) fn script(ruleset: &Ruleset, family: Family, saved: &str) -> String {
    let mut script = String::from("*filter\n");
    // A declaration makes the chain, or empties it.
    for chain in &CHAINS {
        script.push_str(&format!(":{} - [0:0]\n", chain.name));
    }
    for chain in &CHAINS {
        let call = chain.call();
        let n_calls = saved.lines().filter(|line| line.trim_end() == call).count();
        let n_wanted = usize::from(!ruleset.is_empty());
        for _ in n_wanted..n_calls {
            script.push_str(&format!("-D {} -j {}\n", chain.caller, chain.name));
        }
        if ruleset.is_empty() {
            script.push_str(&format!("-X {}\n", chain.name));
            continue;
        }
        for rule in rules(ruleset, family, chain) {
            script.push_str(&rule);
            script.push('\n');
        }
        if n_calls == 0 {
            script.push_str(&format!("-I {} 1 -j {}\n", chain.caller, chain.name));
        }
    }
    script.push_str("COMMIT\n");
    script
}

/// The rules of one chain, as `iptables-save` writes them, without quotes.
fn rules(ruleset: &Ruleset, family: Family, chain: &Chain) -> Vec<String> {
    let mut rules = vec![format!("-A {} {} -j RETURN", chain.name, chain.loopback)];
    for line in ruleset.lines().iter().filter(|line| line.direction == chain.direction) {
        let peers: Vec<String> = match (&line.peers, family) {
            (Peers::All, _) => vec![String::new()],
            (Peers::V4(spans), Family::V4) => spans.iter().map(|span| peer(chain, span)).collect(),
            (Peers::V6(spans), Family::V6) => spans.iter().map(|span| peer(chain, span)).collect(),
            (Peers::V4(_), Family::V6) | (Peers::V6(_), Family::V4) => continue,
        };
        for peer in peers {
            for ports in ports(&line.ports) {
                rules.push(format!(
                    "-A {} -p {} -m conntrack --ctdir ORIGINAL{peer} -m multiport --dports {ports} -m comment --comment {} -j {}",
                    chain.name,
                    line.protocol.name(),
                    line.rule,
                    target(line, family),
                ));
            }
        }
    }
    rules
}

fn peer<T: Display>(chain: &Chain, span: &Span<T>) -> String {
    format!(" -m iprange {} {}-{}", chain.peer, span.first, span.last)
}

/// Ports as lists that one match takes.
fn ports(spans: &[Span<u16>]) -> Vec<String> {
    let mut lists: Vec<(usize, String)> = Vec::new();
    for Span { first, last } in spans {
        let (size, text) = match first == last {
            true => (1, first.to_string()),
            false => (2, format!("{first}:{last}")),
        };
        match lists.last_mut() {
            Some((n, list)) if *n + size <= PORTS_MAX => {
                *n += size;
                list.push(',');
                list.push_str(&text);
            }
            _ => lists.push((size, text)),
        }
    }
    lists.into_iter().map(|(_, list)| list).collect()
}

fn target(line: &Line, family: Family) -> &'static str {
    match (line.verdict, line.protocol, family) {
        (Verdict::Allow, ..) => "RETURN",
        (Verdict::Drop, ..) => "DROP",
        (Verdict::Reject, Protocol::Tcp, _) => "REJECT --reject-with tcp-reset",
        (Verdict::Reject, _, Family::V4) => "REJECT --reject-with icmp-port-unreachable",
        (Verdict::Reject, _, Family::V6) => "REJECT --reject-with icmp6-port-unreachable",
    }
}

#[cfg(test)]
mod tests;
