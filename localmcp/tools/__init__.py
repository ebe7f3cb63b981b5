"""Tools, the scope they run in, and the registry through which every interface calls them.

A tool is a public method marked `@tool(...)`. Its docstring is the description, its type hints are the schema.
"""

from localmcp.schemas import Json as Json
from localmcp.schemas import Param as Param
from localmcp.schemas import compact_json as compact_json
from localmcp.schemas import without_none as without_none
from localmcp.tools.base import MOST_INTEGER as MOST_INTEGER
from localmcp.tools.base import Answer as Answer
from localmcp.tools.base import AskPerson as AskPerson
from localmcp.tools.base import ClientCall as ClientCall
from localmcp.tools.base import Provider as Provider
from localmcp.tools.base import ReportProgress as ReportProgress
from localmcp.tools.base import Scope as Scope
from localmcp.tools.base import Tool as Tool
from localmcp.tools.base import ToolMark as ToolMark
from localmcp.tools.base import at_most as at_most
from localmcp.tools.base import client_call as client_call
from localmcp.tools.base import current_scope as current_scope
from localmcp.tools.base import hidden_change as hidden_change
from localmcp.tools.base import hidden_tool as hidden_tool
from localmcp.tools.base import integer_or_string as integer_or_string
from localmcp.tools.base import tool as tool
from localmcp.tools.base import use_client_call as use_client_call
from localmcp.tools.base import use_scope as use_scope
from localmcp.tools.registry import CallRecord as CallRecord
from localmcp.tools.registry import MethodTool as MethodTool
from localmcp.tools.registry import Registry as Registry
from localmcp.tools.registry import tools_of as tools_of
