//! Migration of files of older programs.
//!
//! The `meta` table has the file's format. Newer formats are refused. Older formats are migrated
//! step by step in one transaction, so that the file has the old or the new format whatever
//! happens.
//!
//! | format | change |
//! |---|---|
//! | 1 | the tables of [`layout`](super::layout) |
//! | 2 | records may have a checksum; older records stay as they are |
//! | 3 | the newest commits may be in the [`journal`](super::journal), in one lap |
//! | 4 | they may be in two laps |
//! | 5 | the journal in use has an id, which `meta` names |

use redb::{Database, WriteTransaction};

use super::{
    error::Fault,
    layout::{Damaged, META, name},
};

/// Migrates a file by one format.
pub(super) type Step = fn(&WriteTransaction) -> Result<(), Fault>;

/// The step from each format to the next, starting with format 1.
pub(super) const STEPS: &[Step] = &[
    // From 1 to 2: no data changes. The number keeps out programs that do not know checksums.
    |_| Ok(()),
    // From 2 to 3: no data changes. The number keeps out programs that do not know the journal.
    |_| Ok(()),
    // From 3 to 4: no data changes, and the journal of format 3 is a first lap. The number keeps
    // out programs that do not read the second one.
    |_| Ok(()),
    // From 4 to 5: the journal has no id, and may have commits. The number keeps out programs that
    // begin a journal without one.
    |transaction| {
        transaction.open_table(META)?.insert(name::JOURNAL, 0)?;
        Ok(())
    },
];

/// Migrates a file from one format to another. A failure leaves the file unchanged.
pub(super) fn migrate_to(
    database: &Database,
    found: u64,
    wanted: u64,
    steps: &[Step],
) -> Result<(), Fault> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    for format in found..wanted {
        let step = usize::try_from(format - 1).ok().and_then(|at| steps.get(at));
        step.ok_or(Damaged("its format is unknown"))?(&transaction)?;
    }
    transaction.open_table(META)?.insert(name::FORMAT, wanted)?;
    Ok(transaction.commit()?)
}
