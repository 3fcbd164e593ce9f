//! EXPLAIN: the plan of a query in Doris's words.

use datafusion::logical_expr::{Expr, JoinType, LogicalPlan};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::output::text_rows;
use super::query::{self, Prepared, QueryOptions};
use super::show::cell;
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;

/// What EXPLAIN tells of one table that is read.
#[derive(Debug, Clone)]
pub(super) struct ScanNote {
    /// Name in the plan.
    pub(super) place: String,
    /// Database.
    pub(super) db: String,
    /// Table.
    pub(super) table: String,
    /// Tablets that are read.
    pub(super) tablets: Vec<u64>,
    /// Tablets of the table.
    pub(super) all_tablets: usize,
    /// Rows of the tablets that are read.
    pub(super) rows: u64,
}

/// `EXPLAIN [VERBOSE | ... PLAN] query`, after EXPLAIN.
pub(super) async fn run(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    for level in [
        "GRAPH",
        "TREE",
        "DUMP",
        "SHAPE",
        "MEMO",
        "PARSED",
        "ANALYZED",
        "REWRITTEN",
        "LOGICAL",
        "OPTIMIZED",
        "PHYSICAL",
        "DISTRIBUTED",
        "ALL",
    ] {
        if cursor.is_word(level) {
            return Err(SqlError::not_served(format!("EXPLAIN {level}")));
        }
    }
    cursor.eat("VERBOSE");
    cursor.eat("PLAN");
    if !cursor.is_word("SELECT") && !cursor.is_word("WITH") && cursor.peek() != Some(&Token::LParen) {
        return Err(SqlError::not_served(format!("EXPLAIN {}", cursor.rest())));
    }
    let tokens = &cursor.tokens[cursor.at..];
    let prepared = query::prepare(session, tokens, cursor.text, &QueryOptions::default()).await?;
    let rows = lines(&prepared)?.into_iter().map(|line| vec![cell(line)]).collect();
    text_rows(&["Explain String(Nereids Planner)"], rows)
}

fn lines(prepared: &Prepared) -> Result<Vec<String>, SqlError> {
    let plan = prepared.optimized()?;
    let mut out = vec!["PLAN FRAGMENT 0".to_owned(), "  OUTPUT EXPRS:".to_owned()];
    out.extend(prepared.plan.schema().fields().iter().enumerate().map(|(i, field)| {
        let label = field.name().split(super::rewrite::LABEL_MARK).next().unwrap_or_default();
        format!("    {label}[#{i}]")
    }));
    out.extend([
        "  PARTITION: UNPARTITIONED".to_owned(),
        String::new(),
        "  VRESULT SINK".to_owned(),
        "     MYSQL_PROTOCOL".to_owned(),
        String::new(),
    ]);
    let mut nodes = Vec::new();
    visit(&plan, None, None, &prepared.scans, &mut nodes);
    for (id, node) in nodes.iter().enumerate().rev() {
        for (i, line) in node.iter().enumerate() {
            out.push(if i == 0 { format!("  {id}:{line}") } else { format!("     {line}") });
        }
        out.push(String::new());
    }
    Ok(out)
}

fn limit_of(expr: &Option<Box<Expr>>) -> Option<String> {
    expr.as_ref().map(|e| e.to_string().trim_start_matches("Int64(").trim_end_matches(')').to_owned())
}

/// Adds the nodes below a plan, then its own; a filter or limit belongs to the node under it.
fn visit(
    plan: &LogicalPlan,
    predicates: Option<String>,
    limit: Option<String>,
    scans: &[ScanNote],
    nodes: &mut Vec<Vec<String>>,
) {
    let mut node =
        match plan {
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
                return plan
                    .inputs()
                    .into_iter()
                    .for_each(|input| visit(input, predicates.clone(), limit.clone(), scans, nodes));
            }
            LogicalPlan::Limit(l) => return visit(&l.input, predicates, limit_of(&l.fetch).or(limit), scans, nodes),
            LogicalPlan::Filter(f) => {
                let text = plain(&f.predicate.to_string());
                let joined = predicates.map_or_else(|| text.clone(), |outer| format!("{outer} AND {text}"));
                return visit(&f.input, Some(joined), limit, scans, nodes);
            }
            LogicalPlan::TableScan(scan) => {
                let place = scan.table_name.table();
                let note = scans.iter().find(|note| note.place == place);
                let pushed: Vec<String> = scan.filters.iter().map(|f| plain(&f.to_string())).collect();
                let mut lines = match note {
                    Some(note) => vec![
                        format!("VOlapScanNode({})", nodes.len()),
                        format!("TABLE: {}.{}({}), PREAGGREGATION: ON", note.db, note.table, note.table),
                        "partitions=1/1 (".to_owned() + &note.table + ")",
                        format!(
                            "tablets={}/{}, tabletList={}",
                            note.tablets.len(),
                            note.all_tablets,
                            note.tablets.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
                        ),
                        format!("cardinality={}, avgRowSize=0.0, numNodes=1", note.rows),
                        "pushAggOp=NONE".to_owned(),
                    ],
                    None => vec![format!("VSCHEMA SCAN({})", nodes.len()), format!("TABLE: {place}")],
                };
                if !pushed.is_empty() {
                    lines.insert(2, format!("PREDICATES: {}", pushed.join(" AND ")));
                }
                lines
            }
            LogicalPlan::Aggregate(a) => {
                let list = |exprs: &[Expr]| exprs.iter().map(|e| plain(&e.to_string())).collect::<Vec<_>>().join(", ");
                vec![
                    "VAGGREGATE (update finalize)".to_owned(),
                    format!("output: {}", list(&a.aggr_expr)),
                    format!("group by: {}", list(&a.group_expr)),
                ]
            }
            LogicalPlan::Sort(s) => {
                let order: Vec<String> = s
                    .expr
                    .iter()
                    .map(|key| format!("{} {}", plain(&key.expr.to_string()), if key.asc { "ASC" } else { "DESC" }))
                    .collect();
                let mut lines = vec![if s.fetch.is_some() { "VTOP-N" } else { "VSORT" }.to_owned()];
                lines.push(format!("order by: {}", order.join(", ")));
                lines.extend(s.fetch.map(|n| format!("limit: {n}")));
                lines
            }
            LogicalPlan::Join(j) => {
                let op = match j.join_type {
                    JoinType::Inner => "INNER JOIN",
                    JoinType::Left => "LEFT OUTER JOIN",
                    JoinType::Right => "RIGHT OUTER JOIN",
                    JoinType::Full => "FULL OUTER JOIN",
                    JoinType::LeftSemi | JoinType::RightSemi => "LEFT SEMI JOIN",
                    JoinType::LeftAnti | JoinType::RightAnti => "LEFT ANTI JOIN",
                    _ => "JOIN",
                };
                let mut lines = vec!["VHASH JOIN".to_owned(), format!("join op: {op}(BROADCAST)[]")];
                lines.extend(j.on.iter().map(|(l, r)| {
                    format!("equal join conjunct: ({} = {})", plain(&l.to_string()), plain(&r.to_string()))
                }));
                lines
            }
            LogicalPlan::Union(_) => vec!["VUNION".to_owned()],
            LogicalPlan::Window(_) => vec!["VANALYTIC".to_owned()],
            LogicalPlan::Distinct(_) => vec!["VAGGREGATE (update finalize)".to_owned()],
            LogicalPlan::EmptyRelation(_) => vec!["VEMPTYSET".to_owned()],
            other => vec![format!(
                "V{}",
                other.display().to_string().split([':', ' ']).next().unwrap_or_default().to_uppercase()
            )],
        };
    if let Some(predicates) = predicates {
        node.insert(node.len().min(2), format!("PREDICATES: {predicates}"));
    }
    node.extend(limit.map(|n| format!("limit: {n}")));
    for input in plan.inputs() {
        visit(input, None, None, scans, nodes);
    }
    nodes.push(node);
}

/// An expression without the marks of the planner.
fn plain(text: &str) -> String {
    let mut out = text.replace(super::rewrite::LABEL_MARK, "");
    for ty in ["Int8", "Int16", "Int32", "Int64", "Utf8", "Boolean", "Float64"] {
        let open = format!("{ty}(");
        while let Some(at) = out.find(&open) {
            let Some(close) = out[at..].find(')') else { break };
            let inner = out[at + open.len()..at + close].to_owned();
            out.replace_range(at..=at + close, &inner);
        }
    }
    out
}
