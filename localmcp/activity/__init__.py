"""The record of every call, whatever interface it came through, and what can be read from it."""

from localmcp.activity.call_log import Activity as Activity
from localmcp.activity.entries import CallOrigin as CallOrigin
from localmcp.activity.entries import LogEntry as LogEntry
from localmcp.activity.entries import LogPage as LogPage
from localmcp.activity.entries import Statistics as Statistics
from localmcp.activity.entries import Usage as Usage
from localmcp.activity.entries import call_origin as call_origin
