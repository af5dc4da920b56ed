"""The dashboard as its visitors meet it: a real server in a process of its own, and a real browser.

Read in this order:
    serving    stores, servers, requests made by hand
    browsing   the browser, and what is told of a page
"""
