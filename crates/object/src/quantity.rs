//! Quantities in canonical form (spec: api-server §13).
/// A quantity that was parsed. Displays canonically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity(String);
/// Why a text is no quantity; displays the API's sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub struct ParseQuantityError;
impl Quantity {
    /// Parses and canonicalises.
    pub fn parse(_text: &str) -> Result<Self, ParseQuantityError> {
        todo!()
    }
    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
