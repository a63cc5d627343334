//! `cargo xtask validation`: sends generated objects to Kubernetes' own kube-apiserver and to
//! `setpoint up`, and writes how the answers differ in `docs/validation.md`.
//!
//! A case is a valid object with one to three small changes. It is created as a dry run; or, for a
//! share of the cases, it updates an object that was created for real, as a dry run, too. No case
//! depends on another one, and the seed and the number of a case say all of it. Compared are the
//! code, the reason, the causes in their order, the message, the warnings, and the object that was
//! accepted.

pub(crate) mod admission;
mod answer;
pub(crate) mod bases;
pub(crate) mod bodies;
mod both;
mod chance;
mod change;
pub(crate) mod custom;
pub(crate) mod documents;
mod findings;
mod objects;
mod page;
mod places;
mod random;
pub(crate) mod reads;
mod scrub;
pub(crate) mod sequences;
pub(crate) mod watches;
mod write;

use crate::http::{Answer, Connection};
use crate::servers::{Layout, Programs};
use answer::{Class, Outcome};
use anyhow::{Result, bail, ensure};
use bases::{Base, CASES, FIXTURES, Material};
use change::{Change, Changer, merge_patch};
use findings::{Findings, Key, on_numbers};
use page::Page;
use random::Random;
use serde_json::{Value, json};
use std::time::Duration;

/// How often a status is written that others write, too.
const STATUS_ATTEMPTS_MAX: usize = 10;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// How many cases.
    #[arg(long, default_value_t = 100_000)]
    cases: usize,
    /// The seed of the cases.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only cases of this kind; prints the differences, and leaves the page alone.
    #[arg(long)]
    kind: Option<String>,
    /// Only the case with this number, with both answers. May be repeated.
    #[arg(long)]
    case: Vec<usize>,
    /// Prints the differences, and leaves the page alone.
    #[arg(long)]
    no_page: bool,
    /// How many connections each server has.
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

/// How an object is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Create,
    Update,
    Patch,
    /// An update of a subresource.
    Of(&'static str),
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Of(subresource) => subresource,
        }
    }
}

/// A generated request.
#[derive(Clone, Debug)]
struct Case {
    /// The position of its base.
    base: usize,
    verb: Verb,
    changes: Vec<Change>,
}

/// A base, and the objects that the servers have made of its fixture.
#[derive(Debug)]
struct Start {
    base: Base,
    /// Ours and the original's; `None` if it cannot be created for real.
    stored: Option<[Value; 2]>,
    /// How often it is picked.
    weight: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("validation", Layout::Apart)?;
    let all = bases::bases(None)?;
    let material = Material::of(&all);
    let mut sides = servers.connect();
    let mut starts = stored(all, &mut sides)?;
    if let Some(kind) = &args.kind {
        ensure!(starts.iter().any(|start| start.base.kind == kind), "no such kind");
        starts
            .iter_mut()
            .filter(|start| start.base.kind != kind)
            .for_each(|other| other.weight = 0);
    }
    for number in &args.case {
        let case = case(args.seed, *number, &starts, &material);
        println!("\ncase {number}");
        show(&case, &starts, &mut sides)?;
    }
    if !args.case.is_empty() {
        return Ok(());
    }
    let findings = Findings::default();
    on_numbers(&servers, args.connections, args.cases, |number, sides| {
        let case = case(args.seed, number, &starts, &material);
        one(number, &case, &starts, sides, &findings)
    })?;
    let report = findings.into_report()?;
    print!("{}", page::listing(&report));
    if args.kind.is_none() && !args.no_page && args.programs.is_default() {
        let page = Page {
            path: "docs/validation.md",
            title: "Answers to generated objects",
            about: "The same requests to kube-apiserver and to `setpoint up`. A request is a valid \
                    object with one to three small changes: a member is removed, added, doubled or \
                    set to an odd value, or gets a value from another object. It is sent as a dry \
                    run: as a create, as an update, a patch or an update of a subresource of an \
                    object that was created before, or as a binding, an eviction or a request for \
                    a token of one. Compared are the code, the reason, the causes \
                    in their order, the message, the warnings, and, if it was accepted, the object \
                    with its defaults.",
            unit: "cases",
            plugins: page::FEW_PLUGINS,
            command: &format!(
                "validation --kube-apiserver PATH --etcd PATH --cases {} --seed {}",
                args.cases, args.seed
            ),
        };
        page.write(&report, &args.programs.version()?)?;
    }
    Ok(())
}

/// Creates the fixtures for real on both servers.
fn stored(bases: Vec<Base>, sides: &mut [Connection; 2]) -> Result<Vec<Start>> {
    let namespace = json!({"metadata": {"name": FIXTURES}}).to_string();
    for side in sides.iter_mut() {
        side.send("POST", "/api/v1/namespaces", namespace.as_bytes())?;
    }
    let mut created = Vec::new();
    for base in bases {
        let mut is_stored = base.has_verb("get");
        for (at, side) in sides.iter_mut().enumerate() {
            let name = ["ours", "original"][at];
            let answer = side.send(
                "POST",
                &format!("{}?dryRun=All", base.path(CASES)),
                base.object.to_string().as_bytes(),
            )?;
            if answer.code >= 300 {
                println!("{} as a dry run, {name}: {}", base.title(), text(&answer));
            }
            if !base.has_verb("get") {
                continue;
            }
            let path = base.path(FIXTURES);
            let answer = side.send("POST", &path, base.fixture.to_string().as_bytes())?;
            if answer.code >= 300 {
                println!("{} for real, {name}: {}", base.title(), text(&answer));
                is_stored = false;
                continue;
            }
            if base.has_status() {
                let answer = put_status(&base, side)?;
                if answer.code >= 300 {
                    println!("{} status, {name}: {}", base.title(), text(&answer));
                }
            }
        }
        created.push((base, is_stored));
    }
    // Definitions get their conditions from controllers of the servers.
    #[expect(clippy::disallowed_methods, reason = "another process is waited for")]
    std::thread::sleep(Duration::from_secs(3));
    let mut starts = Vec::new();
    for (base, is_stored) in created {
        let mut stored = None;
        if is_stored {
            let mut got = [Value::Null, Value::Null];
            for (side, got) in sides.iter_mut().zip(&mut got) {
                let answer = side.send("GET", &base.fixture_path(), b"")?;
                ensure!(answer.code == 200, "{}: {}", base.title(), text(&answer));
                *got = serde_json::from_slice(&answer.body)?;
            }
            stored = Some(got);
        }
        let weight = places::places(&base.object, base.ty).len().isqrt();
        starts.push(Start { base, stored, weight });
    }
    Ok(starts)
}

/// Gives a fixture its status. Controllers of the servers may write it, too.
fn put_status(base: &Base, side: &mut Connection) -> Result<Answer> {
    for attempt in 1.. {
        let answer = side.send("GET", &base.fixture_path(), b"")?;
        let mut object: Value = serde_json::from_slice(&answer.body)?;
        object["status"] = base.fixture["status"].clone();
        let path = format!("{}/status", base.fixture_path());
        let answer = side.send("PUT", &path, object.to_string().as_bytes())?;
        if answer.code != 409 || attempt == STATUS_ATTEMPTS_MAX {
            return Ok(answer);
        }
    }
    bail!("no attempt")
}

fn text(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let message = body["message"].as_str().map(str::to_owned);
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(&answer.body).into_owned());
    format!("{} {message}", answer.code)
}

/// The case with a number.
fn case(seed: u64, number: usize, starts: &[Start], material: &Material) -> Case {
    let mut random = Random::new(seed, number);
    let mut at = random.below(starts.iter().map(|start| start.weight).sum());
    let mut base = 0;
    while base + 1 < starts.len() && at >= starts[base].weight {
        at -= starts[base].weight;
        base += 1;
    }
    let Start { base: start, stored, .. } = &starts[base];
    let verb = match random.below(100) {
        _ if stored.is_none() => Verb::Create,
        0..65 => Verb::Create,
        65..75 if start.has_status() => Verb::Of("status"),
        75..78 if start.serves("resize") => Verb::Of("resize"),
        78..81 if start.serves("ephemeralcontainers") => Verb::Of("ephemeralcontainers"),
        75..81 if start.serves("approval") => Verb::Of("approval"),
        75..81 if start.serves("finalize") => Verb::Of("finalize"),
        81..86 => Verb::Patch,
        _ => Verb::Update,
    };
    let is_any = random.percent(10);
    let wanted = |pointer: &str| match verb {
        Verb::Create => !pointer.starts_with("/status"),
        Verb::Update | Verb::Patch => {
            pointer != "/metadata/name" && (is_any || !pointer.starts_with("/status"))
        }
        Verb::Of("status") => {
            pointer != "/metadata/name" && (is_any || pointer.starts_with("/status"))
        }
        Verb::Of("ephemeralcontainers") => pointer.starts_with("/spec/ephemeralContainers"),
        Verb::Of("approval") => is_any || pointer.starts_with("/status"),
        Verb::Of(_) => pointer.starts_with("/spec/"),
    };
    let object = match (verb, stored) {
        (Verb::Create, _) | (_, None) => &start.object,
        (_, Some([_, original])) => original,
    };
    let mut changer = Changer { material, random };
    Case { base, verb, changes: changer.changes(object, start.ty, wanted) }
}

/// Sends a case with some of its changes to both servers. `None` if a change has no place.
fn send(
    case: &Case,
    changes: &[Change],
    starts: &[Start],
    sides: &mut [Connection; 2],
) -> Result<Option<[(Outcome, Answer); 2]>> {
    let start = &starts[case.base];
    let mut outcomes = Vec::new();
    for (at, side) in sides.iter_mut().enumerate() {
        let object = match (case.verb, &start.stored) {
            (Verb::Create, _) | (_, None) => &start.base.object,
            (_, Some(stored)) => &stored[at],
        };
        let mut request = object.clone();
        if !changes.iter().all(|change| change.apply(&mut request)) {
            return Ok(None);
        }
        let (method, path) = match case.verb {
            Verb::Create => ("POST", start.base.path(CASES)),
            Verb::Update => ("PUT", start.base.fixture_path()),
            Verb::Patch => ("PATCH", start.base.fixture_path()),
            Verb::Of(subresource) => {
                ("PUT", format!("{}/{subresource}", start.base.fixture_path()))
            }
        };
        if let (false, Some([ours, original])) = (case.verb == Verb::Create, &start.stored) {
            let wanted = if at == 0 { ours } else { original };
            request = own(request, original, wanted);
        }
        let body = match case.verb {
            Verb::Patch => merge_patch(object, &request),
            _ => request.clone(),
        };
        let path = format!("{path}?dryRun=All");
        let answer = side.send(method, &path, body.to_string().as_bytes())?;
        let stored = start.stored.as_ref().filter(|_| case.verb != Verb::Create);
        let outcome = Outcome::of(&answer, &request, stored.map(|stored| &stored[at]));
        outcomes.push((outcome, answer));
    }
    Ok(outcomes.try_into().ok())
}

/// A request with what a server made by chance, as that server has it: changes are taken from the
/// original's object.
fn own(request: Value, original: &Value, wanted: &Value) -> Value {
    let mut text = request.to_string();
    for pointer in ["/metadata/uid", "/spec/clusterIP"] {
        let of = |object: &Value| object.pointer(pointer).and_then(Value::as_str).map(quoted);
        if let (Some(from), Some(to)) = (of(original), of(wanted)) {
            text = text.replace(&from, &to);
        }
    }
    let ports = |object: &Value| -> Vec<String> {
        let all = object["spec"]["ports"].as_array().into_iter().flatten();
        let one = |port: &Value| Some(format!("\"nodePort\":{}", port["nodePort"].as_u64()?));
        all.filter_map(one).collect()
    };
    for (from, to) in ports(original).iter().zip(&ports(wanted)) {
        text = text.replace(from, to);
    }
    serde_json::from_str(&text).unwrap_or(request)
}
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// The group of requests that a difference belongs to.
fn key(case: &Case, starts: &[Start], class: Class) -> Key {
    let kind = starts[case.base].base.kind;
    let is_of_pods = [&class.ours, &class.original].iter().any(|text| text.starts_with("(pod)"));
    let kind = if is_of_pods { "templates of pods" } else { kind };
    let verb = match case.verb {
        Verb::Patch => Verb::Update.name(),
        verb => verb.name(),
    };
    (format!("{verb} {kind}"), class)
}

/// Runs a case, and adds what it shows to the findings.
fn one(
    number: usize,
    case: &Case,
    starts: &[Start],
    sides: &mut [Connection; 2],
    findings: &Findings,
) -> Result<()> {
    let Some([ours, original]) = send(case, &case.changes, starts, sides)? else { return Ok(()) };
    let key = ours.0.differs(&original.0).map(|class| key(case, starts, class));
    let base = &starts[case.base].base;
    let example = |changes: &[Change]| {
        let shown: Vec<String> = changes.iter().map(Change::show).collect();
        format!("{}: {}", base.title(), shown.join("; "))
    };
    let first = (number, example(&case.changes));
    let is_new = findings.add(base.kind, original.0.is_accepted(), first, key.clone())?;
    let Some(key) = key.filter(|_| is_new && case.changes.len() > 1) else { return Ok(()) };
    // One change may be enough.
    for change in &case.changes {
        let single = std::slice::from_ref(change);
        let Some([ours, original]) = send(case, single, starts, sides)? else { continue };
        if ours.0.differs(&original.0).is_some_and(|class| class == key.1) {
            return findings.exemplify(&key, example(single));
        }
    }
    Ok(())
}

/// Prints a case and its answers.
fn show(case: &Case, starts: &[Start], sides: &mut [Connection; 2]) -> Result<()> {
    println!("{} {}", case.verb.name(), starts[case.base].base.title());
    for change in &case.changes {
        println!("  {}", change.show());
    }
    let Some(answers) = send(case, &case.changes, starts, sides)? else {
        bail!("a change has no place");
    };
    for (name, (_, answer)) in ["ours", "original"].iter().zip(&answers) {
        println!("{name}: {} {:?}", answer.code, answer.warnings);
        println!("{}", String::from_utf8_lossy(&answer.body));
    }
    println!("{:?}", answers[0].0.differs(&answers[1].0));
    Ok(())
}
