//! A mistake in a configuration, told so that it can be put right without reading anything else.

use std::fmt;

/// One mistake. Shown as one line: path, value, rule, example, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The setting, as in the file (`store.url`).
    pub path: String,
    /// Its value as given; hidden if it is secret.
    pub value: String,
    /// The rule it breaks, as a sentence without a full stop.
    pub rule: String,
    /// What would hold, if anything would.
    pub example: Option<String>,
    /// The variable, flag or file it comes from, if known.
    pub found_in: Option<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, value, rule, example, found_in } = self;
        let mut line = format!("{path} = {value}: {rule}");
        if let Some(example) = example {
            line += &format!("; example: {example}");
        }
        if let Some(found_in) = found_in {
            line += &format!(" (in {found_in})");
        }
        presence_model::id::escape_into(&line, f)
    }
}

/// All mistakes of one configuration, in the order of their paths; never empty. One line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// Those of a list, or none if it is empty.
    #[must_use]
    pub fn of(mistakes: Vec<Mistake>) -> Option<Self> {
        (!mistakes.is_empty()).then_some(Self(mistakes))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }

    /// These and those.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Two results as one: both values, or the mistakes of both.
    ///
    /// # Errors
    /// If either is one.
    pub fn both<A, B>(one: Result<A, Self>, other: Result<B, Self>) -> Result<(A, B), Self> {
        match (one, other) {
            (Ok(one), Ok(other)) => Ok((one, other)),
            (Err(mistakes), Ok(_)) | (Ok(_), Err(mistakes)) => Err(mistakes),
            (Err(one), Err(other)) => Err(one.and(other)),
        }
    }
}

impl From<Mistake> for Mistakes {
    fn from(mistake: Mistake) -> Self {
        Self(vec![mistake])
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
