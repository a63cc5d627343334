//! `cargo xtask watches`: watches what the same writes do at Kubernetes' own kube-apiserver and at
//! `setpoint up`, and writes how the events differ in `docs/watches.md`.
//!
//! A sequence creates, changes and deletes a few objects of one kind. Watches with drawn options
//! begin before it or in the middle: of a selection that objects enter and leave, of another
//! version, from the start or from now, as tables or metadata. The seed and the number of a
//! sequence say all of it.

mod draw;

use super::answer::Class;
use super::both::{Sides, both};
use super::findings::{Findings, on_numbers};
use super::objects;
use super::page::{self, Page};
use super::random::Random;
use super::scrub::{drop_descriptions, scrub};
use crate::http::{Address, Connection};
use crate::servers::{Layout, Programs};
use anyhow::{Context, Result};
use draw::Plan;
use serde_json::{Value, json};
use std::sync::mpsc;

/// How long watches last. All steps are done before.
const SECONDS: usize = 4;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// How many sequences.
    #[arg(long, default_value_t = 1_000)]
    sequences: usize,
    /// The seed of the sequences.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the sequence with this number, with all events. May be repeated.
    #[arg(long)]
    sequence: Vec<usize>,
    /// Prints the differences, and leaves the page alone.
    #[arg(long)]
    no_page: bool,
    /// How many sequences run at once.
    #[arg(long, default_value_t = 32)]
    connections: usize,
}

/// The events of a watch, and how it ended, if not by its time.
#[derive(Debug, Default)]
struct Seen {
    events: Vec<Value>,
    end: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("watches", Layout::Apart)?;
    let addresses = [&servers.ours, &servers.original];
    objects::prepare(&mut servers.connect())?;
    for number in &args.sequence {
        let plan = draw::draw(&mut Random::new(args.seed, *number), *number, SECONDS);
        println!("\nsequence {number}");
        plan.steps.iter().for_each(|step| println!("  {}", step.show()));
        for (watch, seen) in
            plan.watches.iter().zip(play(&plan, &mut servers.connect(), addresses)?)
        {
            println!("{}\n  {:?}", watch.show(), differs(&seen));
            for seen in &seen {
                println!("  {}", seen.end);
                seen.events.iter().for_each(|event| println!("    {event}"));
            }
        }
    }
    if !args.sequence.is_empty() {
        return Ok(());
    }
    let findings = Findings::default();
    on_numbers(&servers, args.connections, args.sequences, |number, sides| {
        let plan = draw::draw(&mut Random::new(args.seed, number), number, SECONDS);
        let all = play(&plan, sides, addresses)?;
        for (watch, seen) in plan.watches.iter().zip(all) {
            let difference =
                differs(&seen).map(|class| (format!("watch of {}", plan.kind.name()), class));
            let is_accepted = seen[1].end.is_empty();
            findings.add(plan.kind.name(), is_accepted, (number, watch.show()), difference)?;
        }
        Ok(())
    })?;
    let report = findings.into_report()?;
    print!("{}", page::listing(&report));
    if !args.no_page && args.programs.is_default() {
        let command = format!(
            "watches --kube-apiserver PATH --etcd PATH --sequences {} --seed {}",
            args.sequences, args.seed
        );
        let page = Page {
            path: "docs/watches.md",
            title: "Events of watches",
            about: "The same writes to kube-apiserver and to `setpoint up`, and the same watches of \
                    them. A sequence creates, changes and deletes a few ConfigMaps, Pods or custom \
                    resources; before it or in its middle, watches begin: with selectors of labels \
                    and fields that objects enter and leave, of a namespace, of all or of one \
                    object, from the start or from the present version, in the other version, as \
                    tables with or without objects, as metadata. Compared are all events in their \
                    order with their objects, but for bookmarks, without times, uids, \
                    resource versions and owners of fields.",
            unit: "watches",
            plugins: page::FEW_PLUGINS,
            command: &command,
        };
        page.write(&report, &args.programs.version()?)?;
    }
    Ok(())
}

/// Runs a sequence with its watches. Returns what each has seen, at ours and at the original.
fn play(plan: &Plan, sides: &mut Sides, addresses: [&Address; 2]) -> Result<Vec<[Seen; 2]>> {
    let collection = plan.kind.collection();
    let start = versions(sides, collection)?;
    let seen = std::thread::scope(|scope| -> Result<_> {
        let mut watchers = Vec::new();
        for at in 0..=plan.steps.len() {
            for (number, watch) in plan.watches.iter().enumerate() {
                if watch.from != at {
                    continue;
                }
                let (begun, begins) = mpsc::channel();
                let from = match watch.is_of_start {
                    true => start.clone(),
                    false => versions(sides, collection)?,
                };
                for (address, version) in addresses.iter().zip(&from) {
                    let begun = begun.clone();
                    let path = format!("{}&resourceVersion={version}", watch.path);
                    let run = move || observe(address, &path, watch.accept, begun);
                    watchers.push((number, scope.spawn(run)));
                }
                drop(begun);
                // Both have begun, or are over.
                while begins.recv().is_ok() {}
            }
            if let Some(step) = plan.steps.get(at) {
                let body = step.body.to_string();
                both(sides, |side, _| {
                    let (method, sent) = (step.write.method(), step.write.content_type());
                    side.send_as(method, &step.path, body.as_bytes(), sent, "application/json")
                })?;
            }
        }
        let mut all: Vec<Vec<Seen>> = plan.watches.iter().map(|_| Vec::new()).collect();
        for (number, watcher) in watchers {
            all[number].push(watcher.join().map_err(|_| anyhow::anyhow!("a watch panicked"))?);
        }
        Ok(all)
    })?;
    let own = &plan.own;
    let selected = format!("{collection}?labelSelector=own%3D{own}");
    both(sides, |side, _| {
        let list = side.send("GET", &selected, b"")?;
        let list: Value = serde_json::from_slice(&list.body)?;
        for item in list["items"].as_array().into_iter().flatten() {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{collection}/{name}");
            let free = json!({"metadata": {"finalizers": null}}).to_string();
            side.send("PATCH", &path, free.as_bytes())?;
            side.send("DELETE", &path, br#"{"gracePeriodSeconds":0}"#)?;
        }
        side.send("GET", &selected, b"")
    })?;
    let pairs = seen.into_iter().map(|pair| <[Seen; 2]>::try_from(pair).ok());
    pairs.collect::<Option<Vec<_>>>().context("a watch of one server only")
}

/// The present resourceVersion of a collection at each server.
fn versions(sides: &mut Sides, collection: &str) -> Result<[String; 2]> {
    let lists = both(sides, |side, _| side.send("GET", &format!("{collection}?limit=1"), b""))?;
    let [ours, original] = lists.map(|list| -> Result<String> {
        let list: Value = serde_json::from_slice(&list.body)?;
        Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
    });
    Ok([ours?, original?])
}

/// Watches until the server ends it. `begun` is dropped once it has begun.
fn observe(address: &Address, path: &str, accept: &str, begun: mpsc::Sender<()>) -> Seen {
    let mut begun = Some(begun);
    let mut seen = Seen::default();
    let ended = Connection::new(address).lines_as(path, accept, |line| {
        let Some(line) = line else { return drop(begun.take()) };
        let mut event: Value = serde_json::from_slice(line).unwrap_or_default();
        if event["type"] == "BOOKMARK" {
            return;
        }
        scrub(&mut event);
        event.get_mut("object").into_iter().for_each(drop_descriptions);
        seen.events.push(event);
    });
    if let Err(error) = ended {
        seen.end = format!("{error}").rsplit(": ").next().unwrap_or_default().to_owned();
    }
    seen
}

/// The first difference of two watches.
fn differs([ours, original]: &[Seen; 2]) -> Option<Class> {
    let class = |what, ours: String, original: String| Some(Class { what, ours, original });
    if ours.end != original.end {
        return class("end", ours.end.clone(), original.end.clone());
    }
    for (a, b) in ours.events.iter().zip(&original.events) {
        if a["type"] != b["type"] {
            return class("event", a["type"].to_string(), b["type"].to_string());
        }
        if let Some(class) = Class::of_bodies(a, b) {
            return Some(class);
        }
    }
    let kind = |seen: &Seen, at: usize| {
        seen.events.get(at).map_or("-".to_owned(), |event| event["type"].to_string())
    };
    let at = ours.events.len().min(original.events.len());
    if ours.events.len() != original.events.len() {
        return class("number of events", kind(ours, at), kind(original, at));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_a_function_of_the_seed() {
        let drawn = |seed| {
            let plan = draw::draw(&mut Random::new(seed, 3), 3, SECONDS);
            format!("{plan:?}")
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn a_missing_event_is_a_difference() {
        let seen = |types: &[&str]| Seen {
            events: types.iter().map(|ty| json!({"type": ty, "object": {}})).collect(),
            end: String::new(),
        };
        let of = |a: &[&str], b: &[&str]| differs(&[seen(a), seen(b)]);
        assert_eq!(of(&["ADDED"], &["ADDED"]), None);
        assert_eq!(of(&["ADDED"], &["ADDED", "DELETED"]).unwrap().what, "number of events");
        assert_eq!(of(&["ADDED"], &["MODIFIED"]).unwrap().what, "event");
    }
}
