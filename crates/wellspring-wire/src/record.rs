//! The native form: the record's own JSON. Nothing is lost.

use wellspring_core::{Outline, Record};

use crate::dialect::Dialect;
use crate::out::Out;

#[cfg(test)]
mod tests;

/// The records as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Records;

impl Dialect for Records {
    fn encode(&mut self, _: &Outline, record: &Record, out: &mut Out) {
        out.event(record);
    }
}
