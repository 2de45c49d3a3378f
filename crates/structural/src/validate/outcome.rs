//! What one step of validation found.

use crate::error::FieldError;
use crate::validate::MOST_ERRORS;

/// Errors, and how many steps were taken: the alternative with most steps is the one whose errors are told.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) errors: Vec<FieldError>,
    pub(super) matches: usize,
}

impl Outcome {
    /// A step that passed.
    pub(super) fn passed() -> Self {
        Self { errors: Vec::new(), matches: 1 }
    }

    /// A step that failed.
    pub(super) fn failed(error: FieldError) -> Self {
        Self { errors: vec![error], matches: 0 }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Adds an error, once.
    pub(super) fn add(&mut self, error: FieldError) {
        if self.errors.len() < MOST_ERRORS && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        other.errors.into_iter().for_each(|error| self.add(error));
    }

    /// Merges a step that applied to the value.
    pub(super) fn step(&mut self, other: Self) {
        self.merge(other);
        self.matches += 1;
    }
}
