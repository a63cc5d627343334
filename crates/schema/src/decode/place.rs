//! Where a value is in its document. A text is made of it only if something is wrong there.

/// A place, as steps on the stack.
#[derive(Clone, Copy)]
pub(super) struct At<'f> {
    step: Step<'f>,
    before: Option<&'f At<'f>>,
    /// Whether it is in a field of a struct.
    pub(super) is_in_field: bool,
}

#[derive(Clone, Copy)]
enum Step<'f> {
    /// Where the document is in a larger one.
    Root(&'f str),
    Field(&'f str),
    Key(&'f str),
    Index(usize),
}

impl<'f> At<'f> {
    pub(super) fn root(path: &'f str) -> Self {
        Self { step: Step::Root(path), before: None, is_in_field: false }
    }
    pub(super) fn field<'n>(&'n self, name: &'n str) -> At<'n> {
        At { step: Step::Field(name), before: Some(self), is_in_field: true }
    }
    pub(super) fn key<'n>(&'n self, name: &'n str) -> At<'n> {
        At { step: Step::Key(name), before: Some(self), is_in_field: self.is_in_field }
    }
    pub(super) fn index(&self, index: usize) -> At<'_> {
        At { step: Step::Index(index), before: Some(self), is_in_field: self.is_in_field }
    }

    /// Whether it is an element of the list that the document is.
    pub(super) fn is_top_element(&self) -> bool {
        matches!(self.step, Step::Index(_)) && self.before.is_some_and(|list| list.before.is_none())
    }

    /// Where unknown fields are reported: `spec.containers[0]`.
    pub(super) fn path(&self) -> String {
        let mut path = self.before.map(At::path).unwrap_or_default();
        match self.step {
            Step::Root(root) => path.push_str(root),
            Step::Field(name) | Step::Key(name) => push_step(&mut path, name),
            Step::Index(index) => {
                path.push('[');
                path.push_str(itoa::Buffer::new().format(index));
                path.push(']');
            }
        }
        path
    }

    /// The same path as Go's decoder has it, without indices and map keys: `spec.containers`.
    pub(super) fn fields(&self) -> String {
        let mut fields = self.before.map(At::fields).unwrap_or_default();
        if let Step::Field(name) = self.step {
            push_step(&mut fields, name);
        }
        fields
    }
}

fn push_step(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}
