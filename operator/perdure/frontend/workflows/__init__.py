"""RPCs about workflows: from clients that start, signal, query, update, and stop them, and from workers that decide them."""
