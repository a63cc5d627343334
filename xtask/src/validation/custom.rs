//! `cargo xtask custom`: sends sequences of writes of custom resources to Kubernetes' own
//! kube-apiserver and to `setpoint up`, and writes how the answers differ in `docs/custom.md`.
//!
//! A sequence has a definition of its own, with a schema that is drawn: one or two versions,
//! subresources, defaults, lists of all types, value validations, rules. Then one object is
//! created, updated, patched, applied by three managers, scaled, deleted and made again, in each
//! version, and the definition is changed meanwhile. After each write the object is read in every
//! version. A sequence ends at the first difference of what is accepted or stored. The seed and
//! its number say all of it.

pub(super) mod schema;
mod step;
mod values;

use super::answer::Class;
use super::both::{Shown, Sides, both, pause, wait};
use super::findings::{Findings, on_numbers};
use super::own;
use super::page::{self, Page};
use super::random::Random;
use crate::http::Answer;
use crate::servers::{Layout, Programs};
use anyhow::{Context, Result, bail};
use schema::Definition;
use serde_json::{Value, json};
use step::{Body, NAME, Step};

/// How often a definition is drawn until both servers take it.
const DRAWS_MAX: usize = 6;
/// How often an object is read until both servers agree.
const AGREED_MAX: usize = 4;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// How many sequences.
    #[arg(long, default_value_t = 2_000)]
    sequences: usize,
    /// How many requests a sequence has at most.
    #[arg(long, default_value_t = 24)]
    length: usize,
    /// The seed of the sequences.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the sequence with this number, with both servers' answers. May be repeated.
    #[arg(long)]
    sequence: Vec<usize>,
    /// Prints the differences, and leaves the page alone.
    #[arg(long)]
    no_page: bool,
    /// How many connections each server has.
    #[arg(long, default_value_t = 6)]
    connections: usize,
}

/// An object in each version, as ours and the original have it.
type Stored = Vec<(String, [Value; 2])>;

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("custom", Layout::Apart)?;
    for number in &args.sequence {
        println!("\nsequence {number}");
        Sequence { number: *number, sides: &mut servers.connect(), findings: None }.run(args)?;
    }
    if !args.sequence.is_empty() {
        return Ok(());
    }
    let findings = Findings::default();
    on_numbers(&servers, args.connections, args.sequences, |number, sides| {
        Sequence { number, sides, findings: Some(&findings) }.run(args)
    })?;
    let report = findings.into_report()?;
    print!("{}", page::listing(&report));
    if !args.no_page && args.programs.is_default() {
        let command = format!(
            "custom --kube-apiserver PATH --etcd PATH --sequences {} --length {} --seed {}",
            args.sequences, args.length, args.seed
        );
        let page = Page {
            path: "docs/custom.md",
            title: "Answers to writes of custom resources",
            about: "The same requests to kube-apiserver and to `setpoint up`. A sequence has a \
                    definition of its own, whose schema is drawn from a seed: one or two versions, \
                    subresources, defaults, nullable members, lists and maps of each type, value \
                    validations, formats, patterns, rules in CEL. One object is created, updated, \
                    patched, applied by three managers, written through `status` and `scale`, \
                    deleted and made again, in each version, with right and odd values; the \
                    schemas change meanwhile. Compared are the answer to each request and the \
                    object in every version after it: code, reason, causes, message, warnings, and \
                    the whole object with `managedFields`, without times and uids. A sequence ends \
                    at the first difference of what is stored or accepted.",
            unit: "requests",
            plugins: page::FEW_PLUGINS,
            command: &command,
        };
        page.write(&report, &args.programs.version()?)?;
    }
    Ok(())
}

/// One sequence. Without a report it prints each request and both answers.
struct Sequence<'a> {
    number: usize,
    sides: &'a mut Sides,
    findings: Option<&'a Findings>,
}

impl Sequence<'_> {
    fn run(&mut self, args: &Args) -> Result<()> {
        let mut random = Random::new(args.seed, self.number);
        let Some(mut definition) = self.define(&mut random)? else { return Ok(()) };
        let mut stored: Option<Stored> = None;
        let mut so_far: Vec<String> = Vec::new();
        for _ in 0..args.length {
            let original: Option<Vec<_>> = stored.as_ref().map(|stored| {
                stored.iter().map(|(name, [_, one])| (name.clone(), one.clone())).collect()
            });
            let step = step::draw(&mut random, &definition, original.as_deref());
            so_far.push(step.name());
            let (shown, next) = match &step.body {
                Body::Definition(new) => self.redefine(new, &definition)?,
                _ => (self.send(&step, &definition, stored.as_ref())?, None),
            };
            let [ours_accepts, accepts] = shown.are_accepted();
            if let (true, Some(next)) = (ours_accepts && accepts, next) {
                definition = next;
            }
            let mut class = shown.differs();
            let mut requests = step.name();
            if self.findings.is_none() {
                println!("{}", step.show());
                print(&shown);
            }
            let is_read = class.is_none();
            if is_read {
                let (name, read, now) = self.read(&definition, &step)?;
                stored = now;
                class = read.differs();
                let is_other = if name == step.version { "" } else { " in the other version" };
                requests = format!("read{is_other} after {requests}");
                if self.findings.is_none() && class.is_some() {
                    println!("read in {name}");
                    print(&read);
                }
            }
            if let (None, Some(class)) = (self.findings, &class) {
                println!("  {requests}: {class:?}");
            }
            // What both refuse leaves the object as it was.
            let is_over = class.is_some() && (is_read || accepts || ours_accepts);
            let tail = so_far[so_far.len().saturating_sub(4)..].join(", ");
            let example = format!("{tail}: {}", step.show());
            self.add(step.verb(), requests, class, accepts, example)?;
            if is_over {
                break;
            }
        }
        self.remove(&definition)
    }

    /// Draws a definition and creates it. `None`: what both take was not drawn.
    fn define(&mut self, random: &mut Random) -> Result<Option<Definition>> {
        for _ in 0..DRAWS_MAX {
            let definition = Definition::draw(random, self.number);
            let collection = definition.path();
            let collection = collection.rsplit_once('/').context("a path")?.0.to_owned();
            let body = definition.object.to_string();
            let answers =
                both(self.sides, |side, _| side.send("POST", &collection, body.as_bytes()))?;
            let shown = Shown::of(without_conditions(answers), &definition.object, None);
            if self.findings.is_none() {
                println!("define {body}");
                print(&shown);
            }
            let class = shown.differs();
            let are_accepted = shown.are_accepted();
            if let (None, Some(class)) = (self.findings, &class) {
                println!("  {class:?}");
            }
            let is_different = class.is_some();
            self.add("definition", "definition".into(), class, are_accepted[1], body)?;
            match are_accepted {
                [true, true] if !is_different => {
                    for version in definition.versions() {
                        let path = definition.collection(&version);
                        both(self.sides, |side, _| wait(side, &path, |answer| answer.code == 200))?;
                    }
                    return Ok(Some(definition));
                }
                [false, false] => {}
                _ => {
                    self.remove(&definition)?;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Changes the definition, and waits until that is in force.
    fn redefine(
        &mut self,
        new: &Definition,
        old: &Definition,
    ) -> Result<(Shown, Option<Definition>)> {
        let path = new.path();
        let body = json!({"spec": {"versions": new.object["spec"]["versions"]}}).to_string();
        let answers = both(self.sides, |side, _| side.send("PATCH", &path, body.as_bytes()))?;
        let shown = Shown::of(without_conditions(answers), &new.object, None);
        if !shown.are_accepted().contains(&false) {
            for version in old.versions() {
                let path = format!("{}/{NAME}", new.collection(&version));
                let mark = new.mark();
                let is_right = |answer: &Answer| {
                    let object: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                    answer.code != 200 || object[&mark] == "new"
                };
                both(self.sides, |side, _| wait(side, &path, is_right))?;
            }
        }
        Ok((shown, Some(new.clone())))
    }

    /// Sends a request to both servers, with what a server made by chance as that server has it.
    fn send(
        &mut self,
        step: &Step,
        definition: &Definition,
        stored: Option<&Stored>,
    ) -> Result<Shown> {
        let path = step.path(definition);
        let mut here = stored.into_iter().flatten();
        let here = here.find(|(name, _)| *name == step.version).map(|(_, here)| here);
        let answers = both(self.sides, |side, at| {
            let mut body = match &step.body {
                Body::Same(body) => body.clone(),
                Body::Changed { changes, is_versioned } => {
                    let mut object = here.map(|here| here[at].clone()).unwrap_or_default();
                    for change in changes {
                        change.apply(&mut object);
                    }
                    if !is_versioned && let Some(meta) = object["metadata"].as_object_mut() {
                        meta.remove("resourceVersion");
                    }
                    object
                }
                Body::Definition(_) => bail!("a definition is sent elsewhere"),
            };
            if let Some(here) = here {
                body = own(body, &here[1], &here[at]);
            }
            let bytes = if body.is_null() { String::new() } else { body.to_string() };
            let kind = step.kind.content_type();
            side.send_as(step.kind.method(), &path, bytes.as_bytes(), kind, "application/json")
        })?;
        Ok(Shown::of(answers, &step.asked(), here))
    }

    /// Reads the object in every version from both until they agree. Returns the first version in
    /// which they do not, or the last; and the object, if it is there.
    fn read(
        &mut self,
        definition: &Definition,
        step: &Step,
    ) -> Result<(String, Shown, Option<Stored>)> {
        let mut stored = Vec::new();
        let mut last = None;
        for version in definition.versions() {
            let path = format!("{}/{NAME}", definition.collection(&version));
            for attempt in 1.. {
                let answers = both(self.sides, |side, _| side.send("GET", &path, b""))?;
                let shown = Shown::of(answers, &step.asked(), None);
                let is_same = shown.differs().is_none();
                if !is_same && attempt < AGREED_MAX {
                    pause();
                    continue;
                }
                if shown.answers.iter().all(|answer| answer.code == 200) {
                    let of = |at: usize| serde_json::from_slice(&shown.answers[at].body);
                    stored.push((version.clone(), [of(0)?, of(1)?]));
                }
                if !is_same {
                    return Ok((version, shown, None));
                }
                last = Some((version.clone(), shown));
                break;
            }
        }
        let (version, shown) = last.context("a definition without versions")?;
        let is_whole = stored.len() == definition.versions().len();
        Ok((version, shown, is_whole.then_some(stored)))
    }

    /// Ends the sequence: object and definition go.
    fn remove(&mut self, definition: &Definition) -> Result<()> {
        if let Some(version) = definition.versions().first() {
            let path = format!("{}/{NAME}", definition.collection(version));
            let free = json!({"metadata": {"finalizers": null}}).to_string();
            both(self.sides, |side, _| {
                side.send("DELETE", &path, b"")?;
                side.send("PATCH", &path, free.as_bytes())
            })?;
        }
        let path = definition.path();
        both(self.sides, |side, _| side.send("DELETE", &path, b""))?;
        Ok(())
    }

    fn add(
        &self,
        verb: &'static str,
        requests: String,
        class: Option<Class>,
        accepted: bool,
        example: String,
    ) -> Result<()> {
        let Some(findings) = self.findings else { return Ok(()) };
        let example = example.split_whitespace().collect::<Vec<_>>().join(" ");
        let difference = class.map(|class| (format!("{requests} of things"), class));
        findings.add(verb, accepted, (self.number, example), difference)?;
        Ok(())
    }
}

/// Definitions without their status, which controllers of the servers write, and without owners.
fn without_conditions(answers: [Answer; 2]) -> [Answer; 2] {
    answers.map(|mut answer| {
        if answer.code < 400
            && let Ok(mut object) = serde_json::from_slice::<Value>(&answer.body)
        {
            if let Some(members) = object.as_object_mut() {
                members.remove("status");
            }
            if let Some(meta) = object["metadata"].as_object_mut() {
                meta.remove("managedFields");
            }
            answer.body = object.to_string().into_bytes();
        }
        answer
    })
}

/// Prints both answers.
fn print(shown: &Shown) {
    for answer in &shown.answers {
        let body = String::from_utf8_lossy(&answer.body);
        println!("  {} {:?} {body}", answer.code, answer.warnings);
    }
}
