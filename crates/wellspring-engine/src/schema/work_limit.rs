//! A JSON value that counts every access, so that validation always ends.
//!
//! A small schema can require more work than a machine can do: references that branch, patterns
//! that backtrack, members of members that are each checked twice. The validator has no limit of
//! its own and cannot be stopped from outside. It can access a value only through this
//! representation, which unwinds it when the steps or the stack are used up.

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson};
use serde_json::{Map, Number, Value};

/// Bytes of a string per step.
const STRING_BYTES_PER_STEP: usize = 16;

/// Steps per error: all errors are kept until the last one is found.
const STEPS_PER_COMPLAINT: u64 = 1000;

/// The budget of one validation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) steps: u64,
    /// Bytes of stack. Between two accesses to a value, the validator can use
    /// [`DEPTH_MAX`](super::size::DEPTH_MAX) further frames.
    pub(super) stack_bytes: usize,
    /// Steps to count when a reference leads back to a schema that contains it, because the work
    /// between two such references is not counted otherwise.
    pub(super) per_recursion: u64,
    /// Steps to count for each string, because patterns may read it repeatedly.
    pub(super) per_string: u64,
}

/// The steps or the stack are used up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Exhausted;

#[derive(Clone, Copy)]
struct Meter {
    left: u64,
    budget: Budget,
    /// The stack's position at the start.
    stack: usize,
}

thread_local! {
    static METER: Cell<Option<Meter>> = const { Cell::new(None) };
}

/// Runs a function on values, within a budget.
pub(super) fn within<T>(budget: Budget, work: impl FnOnce() -> T) -> Result<T, Exhausted> {
    METER.set(Some(Meter { left: budget.steps, budget, stack: stack_pointer() }));
    // An interrupted validation is dropped completely, so no inconsistent state outlives it.
    let done = catch_unwind(AssertUnwindSafe(work));
    METER.set(None);
    match done {
        Ok(done) => Ok(done),
        Err(thrown) if thrown.is::<Exhausted>() => Err(Exhausted),
        Err(panic) => resume_unwind(panic),
    }
}

fn spend(steps: impl FnOnce(&Budget) -> u64) {
    let Some(mut meter) = METER.get() else { return };
    let deep = meter.stack.abs_diff(stack_pointer()) > meter.budget.stack_bytes;
    match meter.left.checked_sub(steps(&meter.budget)) {
        Some(left) if !deep => {
            meter.left = left;
            METER.set(Some(meter));
        }
        // Not a panic: it prints no message, and `within` catches it.
        _ => resume_unwind(Box::new(Exhausted)),
    }
}

#[inline(never)]
fn stack_pointer() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)) as usize
}

fn spend_string(bytes: usize) {
    spend(|budget| 1 + (bytes / STRING_BYTES_PER_STEP) as u64 + budget.per_string);
}

/// The representation.
pub(super) struct Metered;

/// A value of it.
#[derive(Clone, Copy)]
pub(super) struct MeteredNode<'a>(pub(super) &'a Value);

/// An object of it.
pub(super) struct MeteredObject<'a>(&'a Map<String, Value>);

/// An array of it.
pub(super) struct MeteredArray<'a>(&'a [Value]);

impl Json for Metered {
    type Node<'a> = MeteredNode<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        work: impl FnOnce(MeteredNode<'_>) -> T,
    ) -> T {
        SerdeJson::with_string_node(buffer, string, |value| work(MeteredNode(value)))
    }
}

impl<'a> Node<'a, Metered> for MeteredNode<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        spend(|_| 1);
        self.0.as_object().map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        spend(|_| 1);
        self.0.as_array().map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str()?;
        spend_string(text.len());
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        spend(|_| 1);
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        spend(|_| 1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        spend(|_| 1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        spend(|_| 1);
        Node::<SerdeJson>::json_type(&self.0)
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str()?;
        spend(|_| 1 + (text.len() / STRING_BYTES_PER_STEP) as u64);
        Node::<SerdeJson>::string_length(&self.0)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        spend(|_| 1);
        Node::<SerdeJson>::equals_value(&self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        spend(|_| STEPS_PER_COMPLAINT);
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        spend(|budget| budget.per_recursion);
        Node::<SerdeJson>::identity(&self.0)
    }
}

impl<'a> Object<'a, Metered> for MeteredObject<'a> {
    type Node = MeteredNode<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredNode<'a>> {
        spend(|_| 1);
        self.0.get(key).map(MeteredNode)
    }

    fn members(&self) -> Members<'a> {
        Members(self.0.iter())
    }
}

/// The members of an object.
pub(super) struct Members<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, MeteredNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        // Patterns may look at the name.
        spend_string(name.len());
        Some((name, MeteredNode(value)))
    }
}

impl<'a> Array<'a, Metered> for MeteredArray<'a> {
    type Node = MeteredNode<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        spend(|_| self.0.len() as u64);
        Array::<SerdeJson>::is_unique(&self.0)
    }
}

/// The elements of an array.
pub(super) struct Elements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for Elements<'a> {
    type Item = MeteredNode<'a>;

    fn next(&mut self) -> Option<MeteredNode<'a>> {
        let value = self.0.next()?;
        spend(|_| 1);
        Some(MeteredNode(value))
    }
}
