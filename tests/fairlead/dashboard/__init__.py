"""The dashboard from a visitor's side: a real server in a process of its own, and a real browser.

Read in this order:
    serving    stores, servers, requests made by hand
    browsing   the browser, and what is told of a page
"""
