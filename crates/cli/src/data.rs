//! `setpoint store`: maintenance of a data folder.
//!
//! One program at a time can open a folder. While it runs, `stat` and `backup` query it through a
//! socket in the folder ([`control`]). The other commands need the folder for themselves and fail
//! with an error that says so.
//!
//! Every command exits with 0, or prints one line with the problem and what to do about it, leaves
//! the store unchanged, and exits with another code ([`exit_code`]).

pub(crate) mod control;

use crate::print;
use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use setpoint::store::{Damage, DiskError, DiskStat, DiskStore, disk::BUMP_REVISION};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufReader, BufWriter, Read as _, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Options of `setpoint store`.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Exit status: 0 on success, 1 on failure (the store is unchanged), 2 for an invalid command line, 3 if the store or the copy is damaged."
)]
pub(crate) enum Command {
    /// Read the whole store and verify its checksums and invariants. The store must not be in use.
    ///
    /// Reports the damage: the objects that cannot be read, the tables with damaged pages, and how
    /// many objects can be recovered. To check a store that is in use, back it up, restore the copy
    /// into another folder, and check that.
    Check(Folder),
    /// Show what the store contains and its size. Also works while a control plane uses the folder.
    Stat(Stat),
    /// Write a copy to a new file. Also works while a control plane uses the folder.
    ///
    /// The copy is a snapshot of the store with its history. It contains Secrets as the store does,
    /// so only its owner can read it.
    Backup(Copy),
    /// Create a store in an empty folder, from a copy or from the readable part of a damaged store.
    ///
    /// A damaged copy is refused, with the position of the damage, and nothing remains in the
    /// folder. With `--salvage` the new store has the last version of every object that can be read
    /// from the damaged one, without history. The missing objects are listed.
    ///
    /// The new store continues at a higher revision than the copy, without history, so that clients
    /// of the old store list again (--bump-revision).
    Restore(Restore),
    /// Return unused space in the file to the file system. The store must not be in use.
    ///
    /// The store is copied to a new file, which then replaces the old one. There must be room for
    /// both.
    Defrag(Folder),
}

/// The data folder.
#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Options of `stat`.
#[derive(Debug, Args)]
pub(crate) struct Stat {
    #[command(flatten)]
    folder: Folder,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One value per line.
    Text,
    /// One JSON object.
    Json,
}

/// Options of `backup`.
#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The copy.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The copy.
    #[arg(value_name = "FILE", required_unless_present = "salvage")]
    file: Option<PathBuf>,
    /// A data folder with a damaged store. It must not be in use, and is not changed.
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    salvage: Option<PathBuf>,
    /// How much to increase the revision of the copy, as etcdutl's option. The history before is
    /// compacted. Must exceed the number of writes since the backup, because clients may have seen
    /// their revisions: they would miss the next writes. 0 keeps the revision and the history of
    /// the copy, for folders that no client of the old one uses.
    #[arg(long, value_name = "N", default_value_t = BUMP_REVISION, conflicts_with = "salvage",
        value_parser = clap::value_parser!(u64).range(..=BUMP_MAX))]
    bump_revision: u64,
}

/// Maximum of `--bump-revision`, so that revisions stay far below 2⁶³, which clients may count to.
const BUMP_MAX: u64 = 1 << 40;

/// The program's exit code for an error.
///
/// | code | |
/// |---|---|
/// | 1 | the command failed; the message has the cause |
/// | 2 | the command line is invalid |
/// | 3 | the data folder, or a copy of it, is damaged; the message names the objects or tables |
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    let is_damage = error.chain().any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(
                DiskError::Damaged { .. }
                    | DiskError::DamagedJournal { .. }
                    | DiskError::DamagedObjects { .. }
                    | DiskError::DamagedCopy { .. }
            )
        )
    });
    if is_damage { 3 } else { 1 }
}

/// Runs one command.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    quiet_engine();
    match command {
        Command::Check(Folder { data }) => check(&data),
        Command::Stat(Stat { folder, output }) => stat(&folder.data, output),
        Command::Backup(Copy { data, file }) => backup(&data, &file),
        Command::Restore(Restore { data, file: Some(file), bump_revision, .. }) => {
            let copy =
                File::open(&file).with_context(|| format!("cannot open {}", file.display()))?;
            let copy = BufReader::new(copy);
            let revision = DiskStore::restore(&data, copy, &file, bump_revision)?;
            print(format_args!("{} is at revision {revision}\n", data.display()))
        }
        Command::Restore(Restore { data, salvage, .. }) => {
            let from = salvage.context("give a copy or --salvage DIR")?;
            let (revision, damage) = DiskStore::salvage(&data, &from)?;
            print(format_args!("{} is at revision {revision}: {damage}\n", data.display()))?;
            list(&damage)
        }
        Command::Defrag(Folder { data }) => {
            let (before, after) = DiskStore::defrag(&data)?;
            print(format_args!("{} shrank from {before} to {after} bytes\n", data.display()))
        }
    }
}

/// Suppresses redb's panic messages about a damaged file: the store catches these panics and
/// reports them as one-line errors.
pub(crate) fn quiet_engine() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_engine = panic.location().is_some_and(|at| at.file().contains("/redb-"));
        if !is_engine {
            usual(panic);
        }
    }));
}

/// Verifies a store. Prints lost objects, one per line.
fn check(folder: &Path) -> anyhow::Result<()> {
    let checked = DiskStore::check(folder);
    if let Err(DiskError::DamagedObjects { damage, .. }) = &checked {
        // The damage decides the exit code, also if nobody reads the list.
        let _ = list(damage)
            .and_then(|()| print(format_args!("{} objects can be read\n", damage.n_readable)));
    }
    let stat = checked?;
    print(format_args!("{} is intact\n{stat}", folder.display()))
}

fn list(damage: &Damage) -> anyhow::Result<()> {
    for (key, error) in &damage.objects {
        print(format_args!("lost: {key}: {error}\n"))?;
    }
    let n_named = damage.objects.len() as u64;
    if damage.n_objects > n_named {
        print(format_args!("lost: {} more objects\n", damage.n_objects - n_named))?;
    }
    if damage.n_unnamed > 0 {
        print(format_args!("lost: up to {} objects with unknown names\n", damage.n_unnamed))?;
    }
    if let Some(what) = &damage.journal {
        print(format_args!("lost: the newest writes: store.journal {what}\n"))?;
    }
    Ok(())
}

/// A store's statistics as one line of JSON.
fn json(stat: &DiskStat) -> String {
    let object = json!({
        "revision": stat.revision.0,
        "oldestRevision": stat.oldest.0,
        "keys": stat.keys,
        "expiringKeys": stat.expiring,
        "records": stat.records,
        "recordBytes": stat.record_bytes,
        "historyBytes": stat.superseded_bytes,
        "fileBytes": stat.file_bytes,
    });
    format!("{object}\n")
}

fn stat(folder: &Path, output: Output) -> anyhow::Result<()> {
    let request = match output {
        Output::Text => control::STAT,
        Output::Json => control::STAT_JSON,
    };
    if let Some(answer) = control::send(folder, request)? {
        let mut answer = answer.take(control::STAT_BYTES_MAX);
        let n = io::copy(&mut answer, &mut io::stdout().lock()).context("copy the response")?;
        anyhow::ensure!(n > 0, "the program that uses {} did not answer", folder.display());
        return Ok(());
    }
    let stat = DiskStore::stat_folder(folder)?;
    match output {
        Output::Text => print(format_args!("{stat}")),
        Output::Json => print(format_args!("{}", json(&stat))),
    }
}

fn backup(folder: &Path, file: &Path) -> anyhow::Result<()> {
    // Written under a temporary name until it is complete. Existing files are never overwritten.
    let mut partial = file.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    anyhow::ensure!(
        fs::symlink_metadata(file).is_err(),
        "{} already exists: choose another name",
        file.display()
    );
    let cannot = |verb: &str, path: &Path| format!("cannot {verb} {}", path.display());
    // Overwrites a partial file of a killed program.
    let out =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&partial);
    let mut out = out.with_context(|| cannot("create", &partial))?;
    if let Err(TryLockError::WouldBlock) = out.try_lock() {
        anyhow::bail!("{} is being written by another backup", partial.display());
    }
    out.set_len(0).with_context(|| cannot("write", &partial))?;
    let copied = match control::send(folder, control::BACKUP)? {
        Some(mut answer) => io::copy(&mut answer, &mut out)
            .with_context(|| format!("cannot copy the store to {}", partial.display()))
            .and_then(|_| check_copy(&partial)),
        None => copy_of_folder(folder, &partial, &out).map_err(Into::into),
    };
    let renamed = copied.and_then(|()| {
        out.sync_all().with_context(|| cannot("sync", &partial))?;
        fs::rename(&partial, file).with_context(|| cannot("rename the copy to", file))?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        File::open(parent).and_then(|at| at.sync_all()).with_context(|| cannot("sync", parent))
    });
    if renamed.is_err() {
        // The partial file is of no use.
        drop(fs::remove_file(&partial));
    }
    renamed
}

/// Verifies the copy: the program at the other end of the socket may have ended midway.
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
