//! As much of protocol buffers' text format as the cases use.

/// A message: its fields in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<(String, Node)>);

/// The value of a field.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A number or a name.
    Word(String),
    /// A string or bytes.
    Bytes(Vec<u8>),
    /// A message.
    Message(Message),
}

impl Node {
    pub(super) fn to_text(&self) -> String {
        match self {
            Node::Word(word) => word.clone(),
            Node::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Node::Message(_) => String::new(),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Node::Bytes(bytes) => bytes.clone(),
            other => other.to_text().into_bytes(),
        }
    }
}

impl Message {
    fn fields<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m Node> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, node)| node)
    }

    pub(super) fn messages<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m Message> {
        self.fields(name).filter_map(|node| match node {
            Node::Message(message) => Some(message),
            _ => None,
        })
    }

    pub(super) fn message<'m>(&'m self, name: &'m str) -> Option<&'m Message> {
        self.messages(name).next()
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.fields(name).next().map(Node::to_text).unwrap_or_default()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.fields(name).next().is_some()
    }

    pub(super) fn first(&self) -> Option<(&str, &Node)> {
        self.0.first().map(|(name, node)| (name.as_str(), node))
    }

    pub(super) fn debug(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Result<Message, String> {
    let mut reader = Reader { rest: text };
    let message = reader.fields()?;
    match reader.peek() {
        None => Ok(message),
        Some(c) => Err(format!("unexpected {c}")),
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    /// The next character that counts.
    fn peek(&mut self) -> Option<char> {
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
            match self.rest.strip_prefix('#') {
                Some(comment) => {
                    self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
                }
                None => return self.rest.chars().next(),
            }
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        found
    }

    fn fields(&mut self) -> Result<Message, String> {
        let mut message = Message::default();
        loop {
            let name = match self.peek() {
                None | Some('}') => return Ok(message),
                Some(',') => {
                    self.take(',');
                    continue;
                }
                Some('[') => {
                    self.take('[');
                    let (name, rest) = self.rest.split_once(']').ok_or("no ] behind a name")?;
                    self.rest = rest;
                    name.trim().to_owned()
                }
                Some(_) => self.word()?,
            };
            let colon = self.take(':');
            match self.peek() {
                Some('[') if colon => {
                    self.take('[');
                    while !self.take(']') {
                        let node = self.node()?;
                        message.0.push((name.clone(), node));
                        self.take(',');
                    }
                }
                Some(_) => {
                    let node = self.node()?;
                    message.0.push((name, node));
                }
                None => return Err(format!("{name} has no value")),
            }
        }
    }

    fn word(&mut self) -> Result<String, String> {
        self.peek();
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || "_.+-/".contains(c)))
            .unwrap_or(self.rest.len());
        if end == 0 {
            return Err(format!("unexpected {:?}", self.rest.chars().next()));
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(word.to_owned())
    }

    fn node(&mut self) -> Result<Node, String> {
        match self.peek() {
            Some('{') => {
                self.take('{');
                let message = self.fields()?;
                if self.take('}') { Ok(Node::Message(message)) } else { Err("no }".to_owned()) }
            }
            Some('"' | '\'') => {
                let mut bytes = Vec::new();
                while let Some(quote @ ('"' | '\'')) = self.peek() {
                    self.quoted(quote, &mut bytes)?;
                }
                Ok(Node::Bytes(bytes))
            }
            _ => Ok(Node::Word(self.word()?)),
        }
    }

    fn quoted(&mut self, quote: char, bytes: &mut Vec<u8>) -> Result<(), String> {
        let mut rest = &self.rest[1..];
        loop {
            let c = rest.chars().next().ok_or("a string without an end")?;
            rest = &rest[c.len_utf8()..];
            if c == quote {
                self.rest = rest;
                return Ok(());
            }
            if c != '\\' {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            let c = rest.chars().next().ok_or("a string without an end")?;
            rest = &rest[c.len_utf8()..];
            let digits = |count: usize, radix: u32, rest: &mut &str| {
                let found = rest.chars().take(count).take_while(|c| c.is_digit(radix)).count();
                let value = u32::from_str_radix(&rest[..found], radix).unwrap_or(0);
                *rest = &rest[found..];
                value
            };
            match c {
                'n' => bytes.push(b'\n'),
                't' => bytes.push(b'\t'),
                'r' => bytes.push(b'\r'),
                'a' => bytes.push(7),
                'b' => bytes.push(8),
                'f' => bytes.push(12),
                'v' => bytes.push(11),
                'x' | 'X' => bytes.push(digits(2, 16, &mut rest) as u8),
                'u' | 'U' => {
                    let value = digits(if c == 'u' { 4 } else { 8 }, 16, &mut rest);
                    let c = char::from_u32(value).ok_or("not a character")?;
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                '0'..='7' => {
                    let before = rest.len();
                    let more = digits(2, 8, &mut rest);
                    let width = 8u32.pow((before - rest.len()) as u32);
                    bytes.push((c.to_digit(8).unwrap_or(0) * width + more) as u8);
                }
                other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}
