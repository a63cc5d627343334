//! The informer table: every client of the source, one after the other, in one run.
//!
//! Each client is a process of its own, and so is the source. Clients take turns, so that what else
//! the machine does falls on all of them; figures are medians of the rounds. Heap is counted in
//! runs of its own, because counting takes time.

mod goals;
mod machine;
mod runs;

use crate::results;
use crate::table::Table;
pub(crate) use machine::Source;
use runs::Runs;
pub(crate) use runs::Subject;

/// How much to measure.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// How often each client runs.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Leave out everything with a million objects.
    #[arg(long)]
    no_million: bool,
    /// Only this project's clients and the floor, and write nothing: to see what a change does.
    #[arg(long)]
    own: bool,
}

/// The heading in the document.
const HEADING: &str = "Informer";

/// The numbers of objects between which the cost of an event must not differ.
const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Of the many objects, so many rounds: a run takes half a minute.
const MILLION_ROUNDS: usize = 1;

pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let mut runs = Runs::default();
    {
        let source = Source::start(50_000, 100_000)?;
        // The first process to touch the machine's memory pays for it.
        let warm = Subject::setpoint("decoded").sync_only();
        let _ = source.run(&warm)?;
        let subjects: Vec<Subject> =
            runs::subjects().into_iter().filter(|subject| !args.own || subject.is_own()).collect();
        for round in 0..args.rounds {
            for subject in &subjects {
                eprintln!("round {}: {}", round + 1, subject.name);
                runs.add(subject, source.run(subject)?);
            }
        }
        for subject in subjects.iter().filter(|subject| subject.heap) {
            eprintln!("heap: {}", subject.name);
            runs.add_heap(subject, source.run_counted(subject)?);
        }
        for subject in runs::relists() {
            for _ in 0..args.rounds {
                eprintln!("{}", subject.name);
                runs.add(&subject, source.run(&subject)?);
            }
        }
        for subject in runs::readers() {
            for _ in 0..args.rounds {
                eprintln!("reads: {}", subject.name);
                runs.add(&subject, source.run(&subject)?);
            }
        }
    }
    for n_objects in SIZES {
        let is_million = n_objects == 1_000_000;
        if args.no_million && is_million {
            continue;
        }
        let source = Source::start(n_objects, 100_000)?;
        for _ in 0..if is_million { MILLION_ROUNDS } else { args.rounds } {
            for subject in runs::at_size(n_objects) {
                eprintln!("{}", subject.name);
                // What was measured before stays measured.
                match source.run(&subject) {
                    Ok(findings) => runs.add(&subject, findings),
                    Err(error) => eprintln!("{error:#}"),
                }
            }
        }
    }
    let mut clients = runs.table();
    println!("{clients}\n");
    let mut goals = Table::with_verdicts();
    goals::judge(&runs, &mut goals);
    println!("{goals}");
    if !args.own {
        clients += "\n\n";
        results::write(
            Some(HEADING),
            &format!("{}{clients}{goals}\n", runs.preface(args.rounds)?),
        )?;
    }
    Ok(())
}
