//! nftables, by its program `nft` and JSON.
//!
//! # Theory
//!
//! Our part is the table `inet port_rule`, with one base chain per direction. A change is one
//! transaction: the table is deleted and made again, and no packet meets a table without rules. The
//! table is there only while there are rules.
//!
//! | line | what it matches |
//! |---|---|
//! | the first of each chain: accept | packets on the loopback interface, which stay inside the node |
//! | the others | packets in the direction in which the connection was opened, so that a closed port does not close connections that *use* it as their own port |
//!
//! A connection that was open when its port is closed is cut, because its packets match too.
//! Packets that are exempt from connection tracking match no line.
//!
//! What `nft` lists is read back into [`Line`]s and compared. `nft` may write a range as an
//! address, a prefix, a range or a set of one, depending on its version: all become the same line.

use super::{Backend, BackendError, Program, Unsupported};
use crate::api::{Direction, Protocol, Verdict};
use crate::ruleset::{Line, Peers, Rule, Ruleset, Span, merged};
use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::mpsc;

/// The family of the table: IPv4 and IPv6.
const FAMILY: &str = "inet";
/// The name of the table.
pub(crate) const TABLE: &str = "port_rule";
/// The chains, and the hooks they are called at.
const CHAINS: [(Direction, &str, &str); 2] =
    [(Direction::In, "in", "input"), (Direction::Out, "out", "output")];
/// The longest line of `nft monitor` that is read; a longer one is a notice too.
const NOTICE_BYTES_MAX: u64 = 1 << 16;

/// nftables.
#[derive(Debug)]
pub struct Nftables {
    nft: Program,
}

impl Nftables {
    /// The back end's name.
    pub const NAME: &str = "nftables";

    /// Uses this program as `nft`. It needs `CAP_NET_ADMIN`.
    pub fn new(nft: Program) -> Self {
        Self { nft }
    }

    async fn list(&self, args: &[&str]) -> Result<Value, BackendError> {
        let what = "list nftables";
        let output = self.nft.run(args, b"").await;
        let output = output.map_err(|source| BackendError::Program { what, source })?;
        serde_json::from_slice(&output)
            .map_err(|source| BackendError::Output { what, source: Some(source) })
    }

    /// The listing of our table by `nft`, if the table exists.
    async fn table(&self) -> Result<Option<Value>, BackendError> {
        let tables = self.list(&["-j", "list", "tables"]).await?;
        let is_ours =
            |item: &Value| item["table"]["family"] == FAMILY && item["table"]["name"] == TABLE;
        let items = tables["nftables"].as_array();
        let items = items.ok_or(BackendError::Output { what: "list nftables", source: None })?;
        match items.iter().any(is_ours) {
            true => self.list(&["-j", "list", "table", FAMILY, TABLE]).await.map(Some),
            false => Ok(None),
        }
    }
}

impl Backend for Nftables {
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
            let table = self.table().await?;
            Ok(match (&table, ruleset.is_empty()) {
                (None, is_empty) => is_empty,
                (Some(_), true) => false,
                (Some(table), false) => read(table).is_some_and(|lines| lines == ruleset.lines()),
            })
        }
        .boxed()
    }

    fn replace<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<(), BackendError>> {
        async move {
            let script = script(ruleset).to_string();
            let ran = self.nft.run(&["-j", "-f", "-"], script.as_bytes()).await;
            let what = "replace the table of nftables";
            ran.map(drop).map_err(|source| BackendError::Program { what, source })
        }
        .boxed()
    }

    fn notices<'a>(&'a self, changed: mpsc::Sender<()>) -> BoxFuture<'a, Result<(), BackendError>> {
        async move {
            let failed = |source| BackendError::Program { what: "monitor nftables", source };
            let mut monitor = self.nft.command(&["-j", "monitor"]);
            monitor.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = monitor.spawn().map_err(|error| failed(self.nft.io(error)))?;
            let Some(stdout) = child.stdout.take() else { return Ok(()) };
            let mut lines = BufReader::new(stdout);
            let mut line = Vec::new();
            loop {
                line.clear();
                let mut line_part = (&mut lines).take(NOTICE_BYTES_MAX);
                let read = line_part.read_until(b'\n', &mut line).await;
                if read.map_err(|error| failed(self.nft.io(error)))? == 0 {
                    return Ok(());
                }
                // A full channel holds a notice already.
                if let Err(mpsc::error::TrySendError::Closed(())) = changed.try_send(()) {
                    return Ok(());
                }
            }
        }
        .boxed()
    }
}

/// The transaction that replaces the table by a ruleset.
pub(crate) fn script(ruleset: &Ruleset) -> Value {
    let table = json!({"family": FAMILY, "name": TABLE});
    // A table that is not there cannot be deleted, so it is made first.
    let mut commands = vec![json!({"add": {"table": table}}), json!({"delete": {"table": table}})];
    if !ruleset.is_empty() {
        commands.push(json!({"add": {"table": table}}));
        let lines = ruleset.lines();
        for (direction, chain, hook) in CHAINS {
            let of_chain = json!({"family": FAMILY, "table": TABLE, "name": chain,
                "type": "filter", "hook": hook, "prio": 0, "policy": "accept"});
            commands.push(json!({"add": {"chain": of_chain}}));
            let rule = |expressions: Value| json!({"family": FAMILY, "table": TABLE, "chain": chain, "expr": expressions});
            commands.push(json!({"add": {"rule": rule(loopback(direction))}}));
            for line in lines.iter().filter(|line| line.direction == direction) {
                let mut rule = rule(expressions(line));
                rule["comment"] = line.rule.clone().into();
                commands.push(json!({"add": {"rule": rule}}));
            }
        }
    }
    json!({"nftables": commands})
}

fn matching(left: Value, right: Value) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right}})
}

fn loopback(direction: Direction) -> Value {
    let key = match direction {
        Direction::In => "iifname",
        Direction::Out => "oifname",
    };
    json!([matching(json!({"meta": {"key": key}}), "lo".into()), {"accept": null}])
}

fn expressions(line: &Line) -> Value {
    let payload =
        |protocol: &str, field: &str| json!({"payload": {"protocol": protocol, "field": field}});
    let peer = match line.direction {
        Direction::In => "saddr",
        Direction::Out => "daddr",
    };
    let mut all = vec![matching(json!({"ct": {"key": "direction"}}), "original".into())];
    match &line.peers {
        Peers::All => {}
        Peers::V4(spans) => all.push(matching(payload("ip", peer), set(spans, "0.0.0.0"))),
        Peers::V6(spans) => all.push(matching(payload("ip6", peer), set(spans, "::"))),
    }
    all.push(matching(payload(line.protocol.name(), "dport"), set(&line.ports, "")));
    all.push(match (line.verdict, line.protocol) {
        (Verdict::Allow, _) => json!({"accept": null}),
        (Verdict::Drop, _) => json!({"drop": null}),
        (Verdict::Reject, Protocol::Tcp) => json!({"reject": {"type": "tcp reset"}}),
        (Verdict::Reject, _) => json!({"reject": {"type": "icmpx", "expr": "port-unreachable"}}),
    });
    all.into()
}

/// What a field is compared with. The prefix of length 0 is for all values: nftables takes no range
/// of all addresses.
fn set<T: Field>(spans: &[Span<T>], zero: &str) -> Value {
    let element = |span: &Span<T>| match span {
        span if span.first == span.last => span.first.value(),
        span if span.first == T::ALL.first && span.last == T::ALL.last && !zero.is_empty() => {
            json!({"prefix": {"addr": zero, "len": 0}})
        }
        span => json!({"range": [span.first.value(), span.last.value()]}),
    };
    match spans {
        [span] => element(span),
        spans => json!({"set": spans.iter().map(element).collect::<Vec<_>>()}),
    }
}

/// A value of a field, as `nft` writes and reads it.
trait Field: Copy + Ord {
    const ALL: Span<Self>;
    fn value(self) -> Value;
    fn read(value: &Value) -> Option<Self>;
    fn prefix(self, bits: u64) -> Option<Span<Self>>;
    fn next(self) -> Option<Self>;
}

impl Field for u16 {
    const ALL: Span<Self> = Span { first: Self::MIN, last: Self::MAX };

    fn value(self) -> Value {
        self.into()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }

    fn prefix(self, _bits: u64) -> Option<Span<Self>> {
        None
    }

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

macro_rules! address {
    ($address:ty, $bits:ty) => {
        impl Field for $address {
            const ALL: Span<Self> =
                Span { first: Self::from_bits(0), last: Self::from_bits(<$bits>::MAX) };

            fn value(self) -> Value {
                self.to_string().into()
            }

            fn read(value: &Value) -> Option<Self> {
                value.as_str()?.parse().ok()
            }

            fn prefix(self, bits: u64) -> Option<Span<Self>> {
                let n_host_bits = u64::from(<$bits>::BITS).checked_sub(bits)?;
                let size = <$bits>::MAX.checked_shr(u32::try_from(bits).ok()?);
                let hosts = if n_host_bits == 0 { 0 } else { size? };
                Some(Span { first: self, last: Self::from_bits(self.to_bits() | hosts) })
            }

            fn next(self) -> Option<Self> {
                self.to_bits().checked_add(1).map(Self::from_bits)
            }
        }
    };
}

address!(Ipv4Addr, u32);
address!(Ipv6Addr, u128);

/// Reads what a field is compared with: a value, a prefix, a range, or a set of these.
fn spans<T: Field>(right: &Value) -> Option<Vec<Span<T>>> {
    let element = |value: &Value| {
        if let Some([first, last]) = value["range"].as_array().map(Vec::as_slice) {
            return Some(Span { first: T::read(first)?, last: T::read(last)? });
        }
        if let Some(prefix) = value.get("prefix") {
            return T::read(&prefix["addr"])?.prefix(prefix["len"].as_u64()?);
        }
        T::read(value).map(|value| Span { first: value, last: value })
    };
    let spans = match right["set"].as_array() {
        Some(set) => set.iter().map(element).collect::<Option<_>>()?,
        None => vec![element(right)?],
    };
    Some(merged(spans, T::next))
}

/// The lines of a table as `nft -j list table` prints it: first those of `In`, then those of `Out`.
/// `None` if anything is in the table that no ruleset has there, or missing.
pub(crate) fn read(listing: &Value) -> Option<Vec<Line>> {
    let items = listing["nftables"].as_array()?;
    let mut chains = [None, None];
    let at = |name: &Value| CHAINS.iter().position(|(_, chain, _)| name == chain);
    for item in items {
        let (kind, item) = item.as_object()?.iter().next()?;
        match kind.as_str() {
            "metainfo" => {}
            "table" => {
                // Such as `dormant`, which turns the table off.
                if item.get("flags").is_some() {
                    return None;
                }
            }
            "chain" => {
                let index = at(&item["name"])?;
                let is_right = item["type"] == "filter"
                    && item["hook"] == CHAINS.get(index)?.2
                    && item["prio"] == 0
                    && item["policy"] == "accept";
                let chain = is_right.then(Vec::new)?;
                *chains.get_mut(index)? = Some(chain);
            }
            "rule" => {
                let rules = chains.get_mut(at(&item["chain"])?)?.as_mut()?;
                rules.push(item);
            }
            _ => return None,
        }
    }
    let mut lines = Vec::new();
    for ((direction, ..), rules) in CHAINS.into_iter().zip(chains) {
        let mut rules = rules?.into_iter();
        if rules.next()?["expr"] != loopback(direction) {
            return None;
        }
        for rule in rules {
            lines.push(line(direction, rule)?);
        }
    }
    Some(lines)
}

fn line(direction: Direction, rule: &Value) -> Option<Line> {
    let (verdict, matches) = rule["expr"].as_array()?.split_last()?;
    let mut tracked = false;
    let mut peers = Peers::All;
    let mut ports = None;
    for matching in matches {
        let matching = &matching["match"];
        let (left, right) = (&matching["left"], &matching["right"]);
        if matching["op"] != "==" {
            return None;
        }
        if *left == json!({"ct": {"key": "direction"}}) {
            tracked = right == "original";
            continue;
        }
        let payload = left.get("payload")?;
        match (payload["protocol"].as_str()?, payload["field"].as_str()?, direction) {
            ("ip", "saddr", Direction::In) | ("ip", "daddr", Direction::Out) => {
                peers = Peers::v4(spans(right)?);
            }
            ("ip6", "saddr", Direction::In) | ("ip6", "daddr", Direction::Out) => {
                peers = Peers::v6(spans(right)?);
            }
            (protocol, "dport", _) => {
                let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
                let protocol = all.into_iter().find(|known| known.name() == protocol)?;
                ports = Some((protocol, spans::<u16>(right)?));
            }
            _ => return None,
        }
    }
    let (protocol, ports) = ports.filter(|_| tracked)?;
    let rule = rule["comment"].as_str()?.to_owned();
    let line = |verdict| Line { rule, verdict, direction, protocol, ports, peers };
    let (name, how) = verdict.as_object()?.iter().next()?;
    let verdict = match name.as_str() {
        "accept" => Verdict::Allow,
        "drop" => Verdict::Drop,
        "reject" if is_rejected_as(protocol, how) => Verdict::Reject,
        _ => return None,
    };
    Some(line(verdict))
}

fn is_rejected_as(protocol: Protocol, how: &Value) -> bool {
    match protocol {
        Protocol::Tcp => how["type"] == "tcp reset",
        Protocol::Udp | Protocol::Sctp => {
            how["type"] == "icmpx" && how["expr"] == "port-unreachable"
        }
    }
}

#[cfg(test)]
mod tests;
