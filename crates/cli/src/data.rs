//! `setpoint store`: looking after a data folder.
//!
//! A folder belongs to the program that has it open. While that runs, `stat` and `backup` ask it
//! through a socket in the folder ([`control`]); the others need the folder for themselves, and say
//! so.
//!
//! Every command ends with 0, or says in one line what is wrong and what to do about it, leaves the
//! store as it was, and ends with another exit code ([`exit_code`]).

pub(crate) mod control;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use setpoint::store::{Damage, DiskError, DiskStat, DiskStore};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Options of `setpoint store`.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Exit status: 0 when it was done, 1 when it could not be (the store is as it was), 2 for a wrong command line, 3 when the store or the copy is damaged."
)]
pub(crate) enum Command {
    /// Read the whole store and hold it to its checksums and its own rules. Nobody may have it
    /// open.
    ///
    /// What is damaged is named: the objects that cannot be read, the tables in which pages are
    /// damaged, and how many objects can be saved. A store that is in use can be checked by a copy:
    /// back it up, restore the copy into another folder, and check that.
    Check(Folder),
    /// Say what the store holds and weighs, also while a control plane runs on the folder.
    Stat(Stat),
    /// Write a copy into a new file, also while a control plane runs on the folder.
    ///
    /// The copy is the store at one moment, with its history. It holds Secrets as the store does:
    /// only its owner can read it.
    Backup(Copy),
    /// Make a store in a folder that has none out of a copy, or out of what can be read of a
    /// damaged store.
    ///
    /// A copy that is damaged is refused, with the place of the damage, and nothing is left in the
    /// folder. With `--salvage` the new store has every object of the damaged one that can be read,
    /// as it was last, without history; what was left out is listed.
    Restore(Restore),
    /// Give unused space in the file back. Nobody may have it open.
    ///
    /// The store is copied into a new file, which takes the old one's place once it is whole: there
    /// must be room for both.
    Defrag(Folder),
}

/// Which folder.
#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Which folder, and how it is said.
#[derive(Debug, Args)]
pub(crate) struct Stat {
    #[command(flatten)]
    folder: Folder,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// How a command writes what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One thing a line.
    Text,
    /// One JSON object.
    Json,
}

/// Which folder, and which copy.
#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The copy.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Into which folder, and what.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The copy.
    #[arg(value_name = "FILE", required_unless_present = "salvage")]
    file: Option<PathBuf>,
    /// A data folder whose store is damaged. Nobody may have it open; it stays as it is.
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    salvage: Option<PathBuf>,
}

/// The program's exit code for an error.
///
/// | code | |
/// |---|---|
/// | 1 | something could not be done; the message says what and why |
/// | 2 | the command line cannot be read |
/// | 3 | the data folder, or a copy of it, is damaged: the message names the objects or tables |
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    let is_damage = error.chain().any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(
                DiskError::Damaged { .. }
                    | DiskError::DamagedObjects { .. }
                    | DiskError::DamagedCopy { .. }
            )
        )
    });
    if is_damage { 3 } else { 1 }
}

/// Does one of them.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    quiet_engine();
    match command {
        Command::Check(Folder { data }) => check(&data),
        Command::Stat(Stat { folder, output }) => stat(&folder.data, output),
        Command::Backup(Copy { data, file }) => backup(&data, &file),
        Command::Restore(Restore { data, file: Some(file), .. }) => {
            let copy =
                File::open(&file).with_context(|| format!("cannot open {}", file.display()))?;
            let revision = DiskStore::restore(&data, BufReader::new(copy), &file)?;
            println!("{} stands at revision {revision}", data.display());
            Ok(())
        }
        Command::Restore(Restore { data, salvage, .. }) => {
            let from = salvage.context("give a copy, or --salvage DIR")?;
            let (revision, damage) = DiskStore::salvage(&data, &from)?;
            println!("{} stands at revision {revision}: {damage}", data.display());
            list(&damage);
            Ok(())
        }
        Command::Defrag(Folder { data }) => {
            let (before, after) = DiskStore::defrag(&data)?;
            println!("{} had {before} bytes and has {after}", data.display());
            Ok(())
        }
    }
}

/// Keeps redb's own words about a damaged file off standard error: the store catches what it does
/// there, and says it in one line.
pub(crate) fn quiet_engine() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_engine = panic.location().is_some_and(|at| at.file().contains("/redb-"));
        if !is_engine {
            usual(panic);
        }
    }));
}

/// Says of a store that is damaged what is lost, one object a line.
fn check(folder: &Path) -> anyhow::Result<()> {
    let checked = DiskStore::check(folder);
    if let Err(DiskError::DamagedObjects { damage, .. }) = &checked {
        list(damage);
        println!("{} objects can be read", damage.n_readable);
    }
    let stat = checked?;
    println!("{} is whole", folder.display());
    print!("{stat}");
    Ok(())
}

fn list(damage: &Damage) {
    for (key, what) in &damage.objects {
        println!("lost: {key}: {what}");
    }
    let n_named = damage.objects.len() as u64;
    if damage.n_objects > n_named {
        println!("lost: {} more objects", damage.n_objects - n_named);
    }
    if damage.n_unnamed > 0 {
        println!("lost: up to {} objects whose names are not known", damage.n_unnamed);
    }
}

/// What a store holds, as one JSON object on a line.
fn json(stat: &DiskStat) -> String {
    let object = json!({
        "revision": stat.revision.0,
        "oldestRevision": stat.oldest.0,
        "keys": stat.keys,
        "mortalKeys": stat.mortal,
        "records": stat.records,
        "recordBytes": stat.record_bytes,
        "historyBytes": stat.superseded_bytes,
        "fileBytes": stat.file_bytes,
    });
    format!("{object}\n")
}

fn stat(folder: &Path, output: Output) -> anyhow::Result<()> {
    let question = match output {
        Output::Text => control::STAT,
        Output::Json => control::STAT_JSON,
    };
    if let Some(mut answer) = control::ask(folder, question)? {
        let n = io::copy(&mut answer, &mut io::stdout().lock()).context("read the answer")?;
        anyhow::ensure!(n > 0, "the program that has {} open did not answer", folder.display());
        return Ok(());
    }
    let stat = DiskStore::stat_folder(folder)?;
    match output {
        Output::Text => print!("{stat}"),
        Output::Json => print!("{}", json(&stat)),
    }
    Ok(())
}

fn backup(folder: &Path, file: &Path) -> anyhow::Result<()> {
    // Under another name until it is whole; and nothing is overwritten.
    let mut partial = file.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    anyhow::ensure!(
        fs::symlink_metadata(file).is_err(),
        "{} is there already: choose another name",
        file.display()
    );
    let cannot = |what: &str, path: &Path| format!("cannot {what} {}", path.display());
    // One that a killed program has left behind is written over.
    let out =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&partial);
    let mut out = out.with_context(|| cannot("make", &partial))?;
    if let Err(TryLockError::WouldBlock) = out.try_lock() {
        anyhow::bail!("{} is being written by another backup", partial.display());
    }
    out.set_len(0).with_context(|| cannot("write", &partial))?;
    let copied = match control::ask(folder, control::BACKUP)? {
        Some(mut answer) => io::copy(&mut answer, &mut out)
            .with_context(|| cannot("write", &partial))
            .and_then(|_| check_copy(&partial)),
        None => copy_of_folder(folder, &partial, &out).map_err(Into::into),
    };
    let kept = copied.and_then(|()| {
        out.sync_all().with_context(|| cannot("sync", &partial))?;
        fs::rename(&partial, file).with_context(|| cannot("name", file))?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        File::open(parent).and_then(|at| at.sync_all()).with_context(|| cannot("sync", parent))
    });
    if kept.is_err() {
        // What is left of it is of no use.
        drop(fs::remove_file(&partial));
    }
    kept
}

/// The other end may have ended in the middle.
fn check_copy(path: &Path) -> anyhow::Result<()> {
    let copy = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(DiskStore::check_backup(BufReader::new(copy), path)?)
}

fn copy_of_folder(folder: &Path, to: &Path, out: &File) -> Result<(), DiskError> {
    let mut out = BufWriter::new(out);
    DiskStore::backup_folder(folder, &mut out)?;
    let path = to.to_owned();
    out.flush().map_err(|source| DiskError::Io { what: "write", path, source })
}
