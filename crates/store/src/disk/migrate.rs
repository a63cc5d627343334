//! Files of older programs.
//!
//! A file says in `meta` which format it has. One of a newer format is refused; one of an older
//! format is brought forward, one step after the other, all in one transaction: it has the old
//! format or the new one, whatever happens in the middle.
//!
//! | format | what is new in it |
//! |---|---|
//! | 1 | the tables of [`layout`](super::layout) |
//! | 2 | records may carry a checksum; older ones stay as they are |

use redb::{Database, WriteTransaction};

use super::{
    error::Fault,
    layout::{Damaged, META, name},
};

/// Brings a file forward by one format.
pub(super) type Step = fn(&WriteTransaction) -> Result<(), Fault>;

/// The step away from each format, from 1 on.
pub(super) const STEPS: &[Step] = &[
    // From 1 to 2: nothing to rewrite. The number alone keeps programs away that know no checksums.
    |_| Ok(()),
];

/// Brings a file from one format to another. Nothing of it is there if it fails.
pub(super) fn bring_forward(
    database: &Database,
    found: u64,
    wanted: u64,
    steps: &[Step],
) -> Result<(), Fault> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    for format in found..wanted {
        let step = usize::try_from(format - 1).ok().and_then(|at| steps.get(at));
        step.ok_or(Damaged("its format was never one"))?(&transaction)?;
    }
    transaction.open_table(META)?.insert(name::FORMAT, wanted)?;
    Ok(transaction.commit()?)
}
