"""The MCP server `mcp-doris-xues87` against the sandbox, asked through the protocol of MCP."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from report import PASSWORD, USER, address, check, contains, finish

HOST, PORT = address("mysql")


async def main():
    arguments = ["-m", "mcp_doris", "--host", HOST, "--port", str(PORT), "--user", USER, "--password", PASSWORD]
    server = StdioServerParameters(command=sys.executable, args=arguments)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()

        async def call(tool, **arguments):
            result = await session.call_tool(tool, arguments)
            return result.content[0].text if result.content else ""

        contains("F.3", "DDL", await call("execute_statement", sql="CREATE DATABASE mcp"), "0")
        ddl = 'CREATE TABLE mcp.t (k INT NOT NULL, v VARCHAR(9)) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES ("replication_num" = "1")'
        contains("F.3", "a table", await call("execute_statement", sql=ddl), "0")
        contains("H.5", "affected rows", await call("execute_statement", sql="INSERT INTO mcp.t VALUES (1, 'one'), (2, 'two')"), "2")
        contains("F.5", "SHOW DATABASES", await call("list_databases"), "mcp")
        contains("F.5", "SHOW TABLES", await call("list_tables", database="mcp"), "t")
        contains("F.4", "SHOW CREATE TABLE tells the model", await call("describe_table", database="mcp", table="t"), "UNIQUE KEY(`k`)")
        contains("F.1", "a query", await call("execute_query", sql="SELECT v FROM mcp.t WHERE k = 2"), "two")
        contains("F.3", "a refusal", await call("execute_query", sql="SELECT * FROM mcp.nope"), "Table [nope] does not exist in database [mcp].")


asyncio.run(main())
finish("mcp-doris-xues87")
