//! Conversion of one version to the hub and back.

use crate::Refusal;

/// A version that can be converted to the hub `H` and from it.
///
/// Data that `from_hub(to_hub(x))` loses is lost whenever the object is stored in the other version
/// and read back. Store data that has no field in the hub in an annotation. API servers accept
/// changes of labels and annotations only, and restore all other metadata.
///
/// ```
/// use setpoint_webhook::{Refusal, Spoke};
/// # struct CronTabV1 { cron: String }
/// # struct CronTabV2 { minute: String, rest: String }
///
/// impl Spoke<CronTabV2> for CronTabV1 {
///     fn to_hub(self) -> Result<CronTabV2, Refusal> {
///         let (minute, rest) = self.cron.split_once(' ').ok_or_else(|| Refusal::denied("no space in the cron text"))?;
///         Ok(CronTabV2 { minute: minute.into(), rest: rest.into() })
///     }
///     fn from_hub(hub: CronTabV2) -> Result<Self, Refusal> {
///         Ok(Self { cron: format!("{} {}", hub.minute, hub.rest) })
///     }
/// }
/// ```
pub trait Spoke<H>: Sized {
    /// Converts this object to the hub's version.
    ///
    /// # Errors
    ///
    /// The whole review fails with the refusal's message.
    fn to_hub(self) -> Result<H, Refusal>;

    /// Converts the hub's object to this version.
    ///
    /// # Errors
    ///
    /// The whole review fails with the refusal's message.
    fn from_hub(hub: H) -> Result<Self, Refusal>;
}
