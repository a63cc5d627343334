//! Field selectors (spec: api-server §8).
/// A parsed field selector; the empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}
/// `path=value` or `path!=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Term {
    pub path: String,
    pub value: String,
    pub negated: bool,
}
impl FieldSelector {
    /// Parses the query form.
    pub fn parse(_text: &str) -> Result<Self, crate::label::ParseError> {
        todo!()
    }
    /// Its terms.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }
    /// Whether it has no term.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }
    /// The name it requires, if it has a term `metadata.name=x`.
    pub fn requires_name(&self) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| !t.negated && t.path == "metadata.name")
            .map(|t| t.value.as_str())
    }
    /// Matches fields given as a look-up (absent reads as empty).
    pub fn matches<'a>(&self, _field: impl Fn(&str) -> std::borrow::Cow<'a, str>) -> bool {
        todo!()
    }
}
