//! Aggregate functions that fold rows into a state: what a table of definitions says, as functions of the executor.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_datafusion_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::super::env::Env;
use super::row::{Outcome, Types, class, common_type, doris_types, inner_name, prepare, target};
use crate::types::{ColumnBuilder, DorisType, Value};

/// A state that rows are folded into.
pub(crate) trait Fold: Send + Sync + fmt::Debug {
    /// Adds a row.
    fn add(&mut self, row: &[Value]);
    /// The state as values.
    fn save(&self) -> Vec<Value>;
    /// Adds a saved state.
    fn load(&mut self, state: &[Value]);
    /// The result.
    fn finish(&self) -> Outcome;
}

/// An aggregate function.
pub(crate) struct AggDef {
    /// As in [`super::row::Def`].
    pub(crate) names: &'static str,
    /// As in [`super::row::Def`].
    pub(crate) args: &'static str,
    /// Rows with a NULL count; else they are left out.
    pub(crate) sees_null: bool,
    pub(crate) ret: fn(&Types<'_>) -> std::result::Result<DorisType, String>,
    /// Types of the saved state, from those of the (converted) arguments and of the result.
    pub(crate) state: fn(&[DorisType], &DorisType) -> Vec<DorisType>,
    pub(crate) make: fn(&[DorisType], &DorisType) -> Box<dyn Fold>,
}

struct RowAggregate {
    def: &'static AggDef,
    name: String,
    env: Env,
    signature: Signature,
}

impl fmt::Debug for RowAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for RowAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.env == other.env
    }
}

impl Eq for RowAggregate {}

impl Hash for RowAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The executor's function of a definition.
pub(crate) fn function(def: &'static AggDef, env: &Env) -> AggregateUDF {
    AggregateUDF::from(RowAggregate {
        def,
        name: inner_name(def.names),
        env: *env,
        signature: Signature::variadic_any(Volatility::Immutable),
    })
}

impl RowAggregate {
    /// Types of the arguments as they come, and as the function takes them.
    fn types(&self, fields: &[FieldRef]) -> Result<(Vec<DorisType>, Vec<DorisType>)> {
        let own = doris_types(fields)?;
        let common = common_type(self.def.args, &own, &self.env).map_err(|text| exec_datafusion_err!("{text}"))?;
        let first = own.first().cloned().unwrap_or(DorisType::Null);
        let taken =
            own.iter().enumerate().map(|(i, ty)| target(class(self.def.args, i), ty, &first, &common)).collect();
        Ok((own, taken))
    }

    fn result(&self, fields: &[FieldRef]) -> Result<DorisType> {
        let own = doris_types(fields)?;
        let literals = vec![None; own.len()];
        (self.def.ret)(&Types { env: &self.env, args: &own, literals: &literals })
            .map_err(|text| plan_datafusion_err!("{text}"))
    }

    fn build(&self, args: &AccumulatorArgs, sliding: bool) -> Result<Box<dyn Accumulator>> {
        let (own, taken) = self.types(args.expr_fields)?;
        let ret = self.result(args.expr_fields)?;
        let plain = Folding {
            def: self.def,
            env: self.env,
            fold: (self.def.make)(&taken, &ret),
            state: (self.def.state)(&taken, &ret),
            own,
            taken,
            ret,
            distinct: args.is_distinct.then(BTreeSet::new),
            window: sliding.then(VecDeque::new),
        };
        Ok(Box::new(plain))
    }
}

/// State of DISTINCT: the rows themselves.
fn rows_type(types: &[DorisType]) -> DorisType {
    let fields = types.iter().enumerate().map(|(i, ty)| (format!("c{i}"), ty.clone())).collect();
    DorisType::Array(Box::new(DorisType::Struct(fields)))
}

impl AggregateUDFImpl for RowAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("the type of {} comes from its fields", self.name)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        Ok(self.result(fields)?.storage_field(&self.name, true))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.build(&args, false)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.build(&args, true)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let (_, taken) = self.types(args.input_fields)?;
        let ret = self.result(args.input_fields)?;
        let types = if args.is_distinct { vec![rows_type(&taken)] } else { (self.def.state)(&taken, &ret) };
        let field = |(i, ty): (usize, &DorisType)| {
            Arc::new(Field::new(format!("{}[{i}]", args.name), ty.storage(), true)) as FieldRef
        };
        Ok(types.iter().enumerate().map(field).collect())
    }
}

struct Folding {
    def: &'static AggDef,
    env: Env,
    own: Vec<DorisType>,
    taken: Vec<DorisType>,
    ret: DorisType,
    state: Vec<DorisType>,
    fold: Box<dyn Fold>,
    /// Rows seen, when each counts once.
    distinct: Option<BTreeSet<Vec<Value>>>,
    /// Rows of a sliding frame.
    window: Option<VecDeque<Vec<Value>>>,
}

impl fmt::Debug for Folding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folding").field("function", &self.def.names).finish_non_exhaustive()
    }
}

fn scalar(value: &Value, ty: &DorisType) -> Result<ScalarValue> {
    let mut builder = ColumnBuilder::new(ty, true);
    if builder.append_value(value).is_err() {
        builder.append_null();
    }
    super::row::scalar(&builder.finish())
}

impl Folding {
    fn rows(&self, columns: &[ArrayRef]) -> Result<Vec<Vec<Value>>> {
        let prepared: Vec<ArrayRef> = columns
            .iter()
            .zip(&self.own)
            .zip(&self.taken)
            .map(|((array, own), to)| prepare(array, own, to, &self.env.zone))
            .collect::<Result<_>>()?;
        let count = columns.first().map_or(0, |array| array.len());
        let mut rows = Vec::with_capacity(count);
        for i in 0..count {
            let row: Vec<Value> =
                prepared.iter().zip(&self.taken).map(|(array, ty)| Value::read(array.as_ref(), i, ty)).collect();
            rows.push(row);
        }
        Ok(rows)
    }

    fn counts(&self, row: &[Value]) -> bool {
        self.def.sees_null || !row.iter().any(Value::is_null)
    }

    fn add(&mut self, row: Vec<Value>) {
        if self.counts(&row) && self.distinct.as_mut().is_none_or(|seen| seen.insert(row.clone())) {
            self.fold.add(&row);
        }
    }
}

impl Accumulator for Folding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in self.rows(values)? {
            match &mut self.window {
                Some(window) => window.push_back(row),
                None => self.add(row),
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let count = values.first().map_or(0, |array| array.len());
        if let Some(window) = &mut self.window {
            window.drain(..count.min(window.len()));
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.window.is_some()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if let Some(window) = &self.window {
            self.fold = (self.def.make)(&self.taken, &self.ret);
            self.distinct = self.distinct.take().map(|_| BTreeSet::new());
            for row in window.clone() {
                self.add(row);
            }
        }
        let value = self.fold.finish().map_err(|text| exec_datafusion_err!("{text}"))?;
        scalar(&value, &self.ret)
    }

    fn size(&self) -> usize {
        // States are small beside the batches they were made from.
        size_of::<Self>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if let Some(seen) = &self.distinct {
            let rows = Value::List(seen.iter().map(|row| Value::Struct(row.clone())).collect());
            return Ok(vec![scalar(&rows, &rows_type(&self.taken))?]);
        }
        self.fold.save().iter().zip(&self.state).map(|(value, ty)| scalar(value, ty)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let count = states.first().map_or(0, |array| array.len());
        for i in 0..count {
            if self.distinct.is_some() {
                if let Value::List(rows) = Value::read(states[0].as_ref(), i, &rows_type(&self.taken)) {
                    for row in rows {
                        if let Value::Struct(row) = row {
                            self.add(row);
                        }
                    }
                }
                continue;
            }
            let saved: Vec<Value> =
                states.iter().zip(&self.state).map(|(array, ty)| Value::read(array.as_ref(), i, ty)).collect();
            self.fold.load(&saved);
        }
        Ok(())
    }
}
